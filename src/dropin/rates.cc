// Converts static rates: ibv_rate_to_mult(3), ibv_rate_to_mbps(3).
#include <infiniband/verbs.h>

#include <array>

#include "dropin/export.h"

namespace {

struct Rate {
  ibv_rate rate;
  int multiple;  // of 2.5 Gbit/s; -1 if the rate is not a multiple
  int mbps;
};

// Where a rate has both numbers, the multiple is that of the nominal rate and `mbps` is exact: 50
// Gbit/s has 20 and 53125.
constexpr std::array rates{
    Rate{IBV_RATE_2_5_GBPS, 1, 2500},      Rate{IBV_RATE_5_GBPS, 2, 5000},
    Rate{IBV_RATE_10_GBPS, 4, 10000},      Rate{IBV_RATE_20_GBPS, 8, 20000},
    Rate{IBV_RATE_30_GBPS, 12, 30000},     Rate{IBV_RATE_40_GBPS, 16, 40000},
    Rate{IBV_RATE_60_GBPS, 24, 60000},     Rate{IBV_RATE_80_GBPS, 32, 80000},
    Rate{IBV_RATE_120_GBPS, 48, 120000},   Rate{IBV_RATE_14_GBPS, -1, 14062},
    Rate{IBV_RATE_56_GBPS, -1, 56250},     Rate{IBV_RATE_112_GBPS, -1, 112500},
    Rate{IBV_RATE_168_GBPS, -1, 168750},   Rate{IBV_RATE_25_GBPS, -1, 25781},
    Rate{IBV_RATE_100_GBPS, -1, 103125},   Rate{IBV_RATE_200_GBPS, -1, 206250},
    Rate{IBV_RATE_300_GBPS, -1, 309375},   Rate{IBV_RATE_28_GBPS, 11, 28125},
    Rate{IBV_RATE_50_GBPS, 20, 53125},     Rate{IBV_RATE_400_GBPS, 160, 425000},
    Rate{IBV_RATE_600_GBPS, 240, 637500},  Rate{IBV_RATE_800_GBPS, 320, 850000},
    Rate{IBV_RATE_1200_GBPS, 480, 1275000}};

}  // namespace

WEFT_EXPORT int ibv_rate_to_mult(ibv_rate rate) {
  for (const Rate& entry : rates) {
    if (entry.rate == rate) return entry.multiple;
  }
  return -1;
}

// IBV_RATE_MAX is 0, which means no limit in an address handle: the safe result for an unknown
// rate.
WEFT_EXPORT ibv_rate mult_to_ibv_rate(int multiple) {
  for (const Rate& entry : rates) {
    // -1 marks several rates and is not a multiple to look for.
    if (entry.multiple == multiple && multiple > 0) return entry.rate;
  }
  return IBV_RATE_MAX;
}

WEFT_EXPORT int ibv_rate_to_mbps(ibv_rate rate) {
  for (const Rate& entry : rates) {
    if (entry.rate == rate) return entry.mbps;
  }
  return -1;
}

WEFT_EXPORT ibv_rate mbps_to_ibv_rate(int mbps) {
  for (const Rate& entry : rates) {
    if (entry.mbps == mbps) return entry.rate;
  }
  return IBV_RATE_MAX;
}
