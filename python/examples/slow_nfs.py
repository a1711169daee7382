#!/usr/bin/env python3
"""Why was my NFS slow? Where the time of a capture's RPCs went, procedure by procedure.

    python3 slow_nfs.py trace.pcap.zst

Uses pandas if it is installed, for one more table.
"""

import collections
import sys

from weft import capture

FILE = sys.argv[1]

# %% What each procedure cost in all, the most expensive first.

rpcs = [one for one in capture.rpcs(FILE) if "latency_ns" in one]
times = collections.defaultdict(list)
for rpc in rpcs:
    times[rpc["name"]].append(rpc["latency_ns"] / 1e6)
whole = sum(map(sum, times.values())) or 1
print(f"{len(rpcs)} RPCs waited {whole:.1f} ms in all")
print("procedure                     calls  median ms     max ms    of all")
for name, some in sorted(times.items(), key=lambda item: -sum(item[1])):
    some.sort()
    print(f"{name:28s} {len(some):6d} {some[len(some) // 2]:10.3f} {some[-1]:10.3f} "
          f"{sum(some) / whole:9.1%}")

# %% The slowest call, and what moved meanwhile.

if rpcs:
    slowest = max(rpcs, key=lambda one: one["latency_ns"])
    begin, end = slowest["call_ns"], slowest["call_ns"] + slowest["latency_ns"]
    moved = [one for one in capture.operations(FILE)
             if one["connection"] == slowest["connection"] and begin <= one["start_ns"] <= end]
    kinds = collections.Counter(one["kind"] for one in moved)
    print(f"\nslowest: {slowest['name']} in frame {slowest['call_frame']}, "
          f"{slowest['latency_ns'] / 1e6:.3f} ms; meanwhile on its connection: "
          + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))

# %% What the analysis found by itself.

found = list(capture.findings(FILE))
print(f"\n{len(found)} findings")
for one in found:
    print(f"{one['severity']}: {one['sentence']}")

# %% With pandas.

try:
    import pandas
except ImportError:
    print("\npandas is not installed: no table of quantiles (apt install python3-pandas)")
else:
    table = pandas.DataFrame(rpcs)
    print(table.groupby("name").latency_ns.describe())
