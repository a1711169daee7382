#include "capture/storage/scsi_wire.h"

#include <fmt/format.h>

#include "capture/text/fields_wire.h"

namespace weft::capture {
namespace {

constexpr CodeName commands[] = {
    {0x00, "TEST UNIT READY"},
    {0x03, "REQUEST SENSE"},
    {0x04, "FORMAT UNIT"},
    {0x08, "READ(6)"},
    {0x0A, "WRITE(6)"},
    {0x12, "INQUIRY"},
    {0x15, "MODE SELECT(6)"},
    {0x16, "RESERVE(6)"},
    {0x17, "RELEASE(6)"},
    {0x1A, "MODE SENSE(6)"},
    {0x1B, "START STOP UNIT"},
    {0x1D, "SEND DIAGNOSTIC"},
    {0x25, "READ CAPACITY(10)"},
    {0x28, "READ(10)"},
    {0x2A, "WRITE(10)"},
    {0x2E, "WRITE AND VERIFY(10)"},
    {0x2F, "VERIFY(10)"},
    {0x35, "SYNCHRONIZE CACHE(10)"},
    {0x41, "WRITE SAME(10)"},
    {0x42, "UNMAP"},
    {0x4D, "LOG SENSE"},
    {0x55, "MODE SELECT(10)"},
    {0x5A, "MODE SENSE(10)"},
    {0x5E, "PERSISTENT RESERVE IN"},
    {0x5F, "PERSISTENT RESERVE OUT"},
    {0x83, "EXTENDED COPY"},
    {0x84, "RECEIVE COPY RESULTS"},
    {0x88, "READ(16)"},
    {0x89, "COMPARE AND WRITE"},
    {0x8A, "WRITE(16)"},
    {0x8E, "WRITE AND VERIFY(16)"},
    {0x8F, "VERIFY(16)"},
    {0x91, "SYNCHRONIZE CACHE(16)"},
    {0x93, "WRITE SAME(16)"},
    {0x9E, "SERVICE ACTION IN(16)"},
    {0xA0, "REPORT LUNS"},
    {0xA3, "MAINTENANCE IN"},
    {0xA4, "MAINTENANCE OUT"},
    {0xA8, "READ(12)"},
    {0xAA, "WRITE(12)"},
};

constexpr CodeName statuses[] = {
    {0x00, "OK"},         {0x02, "CHECK CONDITION"},      {0x04, "CONDITION MET"},
    {0x08, "BUSY"},       {0x18, "RESERVATION CONFLICT"}, {0x28, "TASK SET FULL"},
    {0x30, "ACA ACTIVE"}, {0x40, "TASK ABORTED"},
};

constexpr CodeName sense_keys[] = {
    {0x0, "NO SENSE"},        {0x1, "RECOVERED ERROR"}, {0x2, "NOT READY"},
    {0x3, "MEDIUM ERROR"},    {0x4, "HARDWARE ERROR"},  {0x5, "ILLEGAL REQUEST"},
    {0x6, "UNIT ATTENTION"},  {0x7, "DATA PROTECT"},    {0x8, "BLANK CHECK"},
    {0x9, "VENDOR SPECIFIC"}, {0xA, "COPY ABORTED"},    {0xB, "ABORTED COMMAND"},
    {0xD, "VOLUME OVERFLOW"}, {0xE, "MISCOMPARE"},      {0xF, "COMPLETED"},
};

constexpr std::uint8_t check_condition = 0x02;

// Whether the command has a block address and a number of blocks. UNMAP has a list instead.
bool has_blocks(std::uint8_t code) {
  constexpr std::uint8_t all[] = {0x08, 0x0A, 0x28, 0x2A, 0x2E, 0x2F, 0x35, 0x41,
                                  0x88, 0x8A, 0x8E, 0x8F, 0x91, 0x93, 0xA8, 0xAA};
  return std::ranges::find(all, code) != std::end(all);
}

// The three highest bits of the code give the length of the descriptor block (SPC-4 §4.2.5.1).
void add_blocks(Bytes cdb, std::uint8_t code, StorageCommand& command) {
  switch (code >> 5U) {
    case 0: {
      constexpr std::uint32_t block_mask = 0x1F'FFFF;
      if (const auto block = field_be<std::uint32_t>(cdb, 0)) command.block = *block & block_mask;
      constexpr std::uint64_t blocks_for_zero = 256;
      if (const auto blocks = field_8(cdb, 4)) {
        command.blocks = *blocks == 0 ? blocks_for_zero : *blocks;
      }
      break;
    }
    case 1:
    case 2:
      command.block = field_be<std::uint32_t>(cdb, 2);
      command.blocks = field_be<std::uint16_t>(cdb, 7);
      break;
    case 4:
      command.block = field_be<std::uint64_t>(cdb, 2);
      command.blocks = field_be<std::uint32_t>(cdb, 10);
      break;
    default:
      command.block = field_be<std::uint32_t>(cdb, 2);
      command.blocks = field_be<std::uint32_t>(cdb, 6);
      break;
  }
}

}  // namespace

void decode_cdb(Bytes cdb, StorageCommand& command) {
  const auto code = field_8(cdb, 0);
  if (!code) return;
  command.name = name_of(commands, *code, "other command");
  if (has_blocks(*code)) add_blocks(cdb, *code, command);
}

void decode_lun(Bytes lun, StorageCommand& command) {
  const auto first = field_be<std::uint16_t>(lun, 0);
  constexpr std::uint16_t number_mask = 0x3FFF;  // the two bits above are the method
  if (first) command.unit = *first & number_mask;
}

std::string scsi_status_text(std::uint8_t status, Bytes sense) {
  const auto response = field_8(sense, 0);
  constexpr std::uint8_t response_mask = 0x7F;
  constexpr std::uint8_t key_mask = 0x0F;
  if (status == check_condition && response) {
    // Response codes 72h and 73h are the format with descriptors (SPC-4 §4.5).
    const bool descriptors = (*response & response_mask) >= 0x72;
    const auto key = field_8(sense, descriptors ? 1 : 2);
    const auto code = field_be<std::uint16_t>(sense, descriptors ? 2 : 12);
    if (key && code) {
      return fmt::format("{} {:02x}/{:02x}", name_of(sense_keys, *key & key_mask), *code >> 8U,
                         *code & 0xFFU);
    }
  }
  const std::string_view name = name_of(statuses, status, "");
  return name.empty() ? fmt::format("status {:#x}", status) : std::string(name);
}

}  // namespace weft::capture
