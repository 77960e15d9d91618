"""Uses sandboxes by the package k8s-agent-sandbox and prints what it saw as JSON. KUBECONFIG names the API server.

Arguments: address of the router, token of the cluster, certificate of its authority, warm pool, seconds to wait.
"""

import json
import sys

from k8s_agent_sandbox import SandboxClient
from k8s_agent_sandbox.exceptions import SandboxRequestError
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig

url, token, ca, pool, seconds = sys.argv[1:]
config = SandboxDirectConnectionConfig(
    api_url=url, extra_headers={"Authorization": f"Bearer {token}"}, ca_cert=ca
)
wait = int(seconds)
client = SandboxClient(connection_config=config)
seen: dict[str, object] = {}

sandbox = client.create_sandbox(
    pool, sandbox_ready_timeout=wait, labels={"by": "python"}, shutdown_after_seconds=3600
)
claim = sandbox.claim_name
seen["status"] = sandbox.status()[0]
result = sandbox.commands.run("echo out; echo err >&2; exit 3", timeout=wait)
seen["run"] = [result.stdout, result.stderr, result.exit_code, result.timed_out]
late = sandbox.commands.run("sleep 600", timeout=wait, command_timeout=1)
seen["timed_out"] = late.timed_out
content = bytes(range(256)) * 512
sandbox.files.write("sub/bytes", content, timeout=wait)
sandbox.files.write("sub/text", "häl lo", timeout=wait)
seen["same"] = sandbox.files.read("sub/bytes", timeout=wait) == content
seen["list"] = [[e.name, e.size, e.type] for e in sandbox.files.list("sub", timeout=wait)]
seen["exists"] = [sandbox.files.exists(p, timeout=wait) for p in ("sub/text", "none")]
seen["cat"] = sandbox.commands.run("cat sub/text", timeout=wait).stdout
try:
    sandbox.files.read("none", timeout=wait)
except SandboxRequestError as error:
    seen["missing"] = error.status_code
seen["listed"] = client.list_all_sandboxes(label_selector="by=python") == [claim]
seen["found"] = SandboxClient(connection_config=config).get_sandbox(claim).sandbox_id == sandbox.sandbox_id

own = client.create_sandbox(pool, claim_name="own-name", sandbox_ready_timeout=wait)
same = client.create_sandbox(
    pool, claim_name="own-name", adopt_existing=True, sandbox_ready_timeout=wait
)
seen["adopted"] = same.sandbox_id == own.sandbox_id
own.terminate()
sandbox.terminate()
seen["gone"] = sandbox.status()[0]
seen["left"] = client.list_all_sandboxes()
print(json.dumps(seen))
