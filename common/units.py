"""The units that Datadog knows: of any other it reports nothing, and shows the bare number.

`common/metric.py` refuses a declaration with another unit.
"""

from __future__ import annotations

UNITS = frozenset(
    """\
ampere, apdex, assertion, attempt, bit, block, buffer, build, byte, cent, check, column, command,
commit, connection, container, core, cpu, cursor, datagram, day, degree celsius, degree fahrenheit,
device, document, dollar, email, entry, error, euro, event, eviction, exabyte, exbibyte, exception,
execution, fault, fetch, file, flush, fraction, garbage collection, get, gibibyte, gigabyte, gigahertz,
hertz, hit, hop, host, hour, index, inode, instance, invocation, item, job, key, kibibyte, kilobyte,
kilocore, kilohertz, kilowatt, location, lock, mebibyte, megabyte, megahertz, megawatt, merge, message,
method, microcore, microsecond, milliampere, millicore, millisecond, millivolt, milliwatt, minute, miss,
monitor, nanocore, nanosecond, node, object, occurrence, offset, operation, packet, page, payload,
pebibyte, percent, petabyte, prediction, process, query, question, read, record, refresh, request,
resource, response, route, row, run, scan, second, sector, segment, service, session, set, shard, span,
split, stage, step, success, table, task, tebibyte, terabyte, thread, throttle, ticket, time, timeout,
transaction, unit, update, user, volt, wait, watt, week, worker, write
""".replace("\n", " ")
    .strip()
    .split(", ")
)
