"""Examples from the documentation of E2B's code interpreter (PyPI) against the daemon, with and without asyncio."""

import asyncio
import base64
import os

from e2b import NotFoundException
from e2b_code_interpreter import AsyncSandbox, Sandbox

# Same value as in tests/helpers/patience.ts
PATIENCE_SECS = int(20 * float(os.environ.get("FORKD_TEST_REFERENCE_MS", 10_000)) / 1000)

FIGURE = """
import matplotlib.pyplot as plt
plt.bar(['a', 'b'], [1, 2])
plt.ylabel('Count')
plt.show()
"""


def check_sync():
    with Sandbox.create(timeout=5 * PATIENCE_SECS, envs={"COLOUR": "blue"}) as sandbox:
        sandbox.run_code("x = 1")
        seen = []
        execution = sandbox.run_code("x += 1; print('grüße'); x", on_stdout=lambda message: seen.append(message.line))
        assert execution.text == "2", execution
        assert "".join(seen) == "grüße\n", seen
        assert execution.execution_count == 2, execution.execution_count

        error = sandbox.run_code("1 / 0").error
        assert (error.name, error.value) == ("ZeroDivisionError", "division by zero"), error

        (figure,) = sandbox.run_code(FIGURE, timeout=PATIENCE_SECS).results
        assert base64.b64decode(figure.png).startswith(b"\x89PNG")
        assert figure.chart.type == "bar" and figure.chart.y_label == "Count", figure.chart
        assert [(bar.label, float(bar.value)) for bar in figure.chart.elements] == [("a", 1.0), ("b", 2.0)]

        (table,) = sandbox.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2]})", timeout=PATIENCE_SECS).results
        assert table.data == {"a": [1, 2]} and "<table" in table.html, table

        code = "import os; (os.environ.get('COLOUR'), os.environ.get('ONE'))"
        assert sandbox.run_code(code, envs={"ONE": "1"}).text == "('blue', '1')"
        assert sandbox.run_code(code).text == "('blue', None)"

        context = sandbox.create_code_context(language="bash", cwd="/tmp")
        assert sandbox.run_code("y=3; pwd", context=context).logs.stdout == ["/tmp\n"]
        assert context.id in [known.id for known in sandbox.list_code_contexts()]
        sandbox.restart_code_context(context)
        assert sandbox.run_code("echo [$y]", context=context).logs.stdout == ["[]\n"]
        sandbox.remove_code_context(context)
        try:
            sandbox.run_code("1", context=context)
        except NotFoundException:
            pass
        else:
            raise AssertionError("a context that was removed runs code")


async def check_async():
    sandbox = await AsyncSandbox.create(timeout=5 * PATIENCE_SECS)
    try:
        results = []
        execution = await sandbox.run_code("const x = 6; x * 7", language="javascript", on_result=results.append)
        assert execution.text == "42" and results[0].is_main_result, execution
    finally:
        await sandbox.kill()


check_sync()
asyncio.run(check_async())
print("all of it works", flush=True)
# Skip interpreter shutdown: the HTTP library of newer SDKs sometimes aborts there
os._exit(0)
