// RDMA traffic of captures: packets go in, operations and RPCs come out.
//
//   struct Show : weft::capture::OperationSink {
//     void on_operation(const weft::capture::Operation& operation) override { … }
//   } show;
//   weft::capture::Analysis analysis;
//   analysis.add_operations(show);
//   const auto source = weft::capture::open_capture("trace.pcapng");
//   weft::capture::RawPacket packet;
//   while (source->next(packet)) analysis.add(packet);
//   analysis.finish();
//
// Everything is pushed: whoever is added as a sink is called during add() and finish(), and nothing
// else runs. Packets may come from anywhere. Each part also stands alone:
//
//   PacketSource      files, standard input, memory, an interface: packets
//   PacketDecoder     packets to TCP segments and packets of InfiniBand's transport
//   TcpFlows          segments to byte streams; IwarpTransport puts iWARP on them
//   InfinibandTransport  packets to traffic
//   OperationTracker  traffic to operations
//   RpcTracker        traffic to RPCs with their chunks
//   TrafficFindings, CreditFindings, Statistics  what is wrong with traffic, and sums
//   Reassembly        segments of chunk lists, by hand, without any packet
//
// Link with weft::capture. One thread at a time uses an object and what it is connected to; objects
// that are not connected share nothing. Times are nanoseconds, sizes bytes, unless a name says
// otherwise. What a sink is given (references, spans) is valid during the call only.
//
// Nothing that packets hold makes a call throw: it is counted, or becomes a flaw or a finding. What
// is thrown is std::bad_alloc, what opening a source says, and whatever a sink throws; that passes
// through, and the analysis may then only be destroyed.
#pragma once

#include "weft/capture/analysis.hpp"
#include "weft/capture/credit_findings.hpp"
#include "weft/capture/operation_tracker.hpp"
#include "weft/capture/reassembly.hpp"
#include "weft/capture/rpc_findings.hpp"
#include "weft/capture/rpc_text.hpp"
#include "weft/capture/rpc_tracker.hpp"
#include "weft/capture/statistics.hpp"
#include "weft/capture/traffic_findings.hpp"
#include "weft/capture/transports.hpp"
