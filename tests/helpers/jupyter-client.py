"""Runs cells in the first kernel of a Jupyter server with the client from PyPI, and prints the results.

Usage: jupyter-client.py SERVER TOKEN CELL...
"""

import json
import os
import sys

import requests
from jupyter_kernel_client import JupyterKernelClient

server, token, *cells = sys.argv[1:]
headers = {"X-Forkd-Token": token}
# Same value as in tests/helpers/patience.ts
PATIENCE_SECS = 20 * float(os.environ.get("FORKD_TEST_REFERENCE_MS", 10_000)) / 1000
answer = requests.get(f"{server}/api/kernels", headers=headers, timeout=PATIENCE_SECS)
answer.raise_for_status()
kernel = JupyterKernelClient(server_url=server, token=None, headers=headers, kernel_id=answer.json()[0]["id"])
kernel.start()
print(json.dumps([kernel.execute(cell, timeout=PATIENCE_SECS) for cell in cells]), flush=True)
# A normal exit waits ten seconds for a listener thread of the client.
os._exit(0)
