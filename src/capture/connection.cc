#include "capture/connection.h"

namespace weft::capture {

const char* to_string(Transport transport) {
  switch (transport) {
    case Transport::iwarp:
      return "iWARP";
    case Transport::rc:
      return "RC";
    case Transport::uc:
      return "UC";
    case Transport::ud:
      return "UD";
    case Transport::rd:
      return "RD";
    case Transport::xrc:
      return "XRC";
  }
  return "?";
}

const char* to_string(Connection::End end) {
  switch (end) {
    case Connection::End::open:
      return "open";
    case Connection::End::half_open:
      return "half-open";
    case Connection::End::closed:
      return "closed";
    case Connection::End::reset:
      return "reset";
    case Connection::End::terminated:
      return "terminated";
    case Connection::End::rejected:
      return "rejected";
    case Connection::End::unanswered:
      return "unanswered";
  }
  return "?";
}

}  // namespace weft::capture
