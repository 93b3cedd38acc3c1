"""The clients of ``benchmarks.serving``: ``python -m benchmarks.serving_client ADDRESS FILE N
SECONDS``.

FILE has a request in every line. Each of the N clients sends one after the other over one
connection, until the time is
over, and a line of JSON says how it went: seconds of each answer, by status. A client that is
refused with 429 waits as long as the server asks it to.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path


def main() -> None:
    """Send requests, print a line."""
    address, file, clients, seconds = (
        sys.argv[1],
        Path(sys.argv[2]),
        int(sys.argv[3]),
        float(sys.argv[4]),
    )
    bodies = file.read_bytes().splitlines()
    took: defaultdict[int, list[float]] = defaultdict(list)
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
            took[response.status].append(time.monotonic() - started)
            turn += clients
            if response.status == 429:
                asked = float(response.headers.get("Retry-After", "1"))
                time.sleep(max(0.0, min(asked, end - time.monotonic())))

    started = time.monotonic()
    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"took": took, "seconds": time.monotonic() - started}))


if __name__ == "__main__":
    main()
