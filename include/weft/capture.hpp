// Analyses RDMA traffic in packet captures: the input is packets, the output is operations and
// RPCs.
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
// The library pushes its results: it calls the sinks that were added during add() and finish(), and
// it starts no thread. Packets may come from any place. Each part can also be used
// alone:
//
//   PacketSource         reads packets from files, standard input, memory or an interface
//   PacketDecoder        turns packets into TCP segments and packets of InfiniBand's transport
//   TcpFlows             turns segments into byte streams; IwarpTransport decodes iWARP in them
//   InfinibandTransport  turns packets into traffic
//   OperationTracker     turns traffic into operations
//   RpcTracker           turns traffic into RPCs with their chunks
//   StorageTracker       turns traffic into commands of NVMe, SMB, iSER and SRP
//   TrafficFindings, CreditFindings, Statistics  report faults in the traffic, and sums
//   QualityMeter         reports what the capture lacks
//   Reassembly           reassembles the segments of chunk lists by hand, without any packet
// Link with weft::capture. Only one thread at a time may use an object and the objects that are
// connected to it; objects that are not connected share nothing. Times are nanoseconds and sizes
// are bytes, unless a name gives another unit. What a sink receives (references, spans) is valid
// during the call only.
//
// The content of packets never makes a call throw: bad content is counted, or becomes a flaw or a
// finding. A call can throw std::bad_alloc, the errors of opening a source, and what a sink throws.
// An exception of a sink passes through; after it the analysis may only be destroyed.
#pragma once

#include "weft/capture/analysis.hpp"
#include "weft/capture/credit_findings.hpp"
#include "weft/capture/operation_tracker.hpp"
#include "weft/capture/quality.hpp"
#include "weft/capture/reassembly.hpp"
#include "weft/capture/rpc_findings.hpp"
#include "weft/capture/rpc_text.hpp"
#include "weft/capture/rpc_tracker.hpp"
#include "weft/capture/statistics.hpp"
#include "weft/capture/storage_tracker.hpp"
#include "weft/capture/traffic_findings.hpp"
#include "weft/capture/transports.hpp"
