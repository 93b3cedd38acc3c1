"""The clients of ``benchmarks.serving``: ``python -m benchmarks.serving_client ADDRESS FILE N SECONDS``.

FILE has a request in every line. Each of the N clients sends one after the other over one connection, until the time is
over, and a line of JSON says how it went: seconds of each answer, and how many had which status.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path


def main() -> None:
    """Send requests, print a line."""
    address, file, clients, seconds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    bodies = file.read_bytes().splitlines()
    took: list[float] = []
    statuses: Counter[int] = Counter()
    end = time.monotonic() + seconds

    def client(number: int) -> None:
        connection = http.client.HTTPConnection(address, timeout=120)
        turn = number
        while time.monotonic() < end:
            started = time.monotonic()
            body = bodies[turn % len(bodies)]
            connection.request("POST", "/v1/rerank", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            took.append(time.monotonic() - started)
            statuses[response.status] += 1
            turn += clients

    started = time.monotonic()
    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"took": took, "statuses": statuses, "seconds": time.monotonic() - started}))


if __name__ == "__main__":
    main()
