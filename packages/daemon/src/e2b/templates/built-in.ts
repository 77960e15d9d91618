// The templates that E2B's SDKs name when nobody names another one: made when they are first asked for.

import type { CreateImage } from "../../api/image.ts";
import type { CreateSnapshot } from "../../api/snapshot.ts";

type Recipe = { image: CreateImage; snapshot: Omit<CreateSnapshot, "tag" | "image"> };

/** As in E2B's own images: who is not told otherwise is this user */
const ADD_USER = "useradd --create-home --shell /bin/bash --uid 1000 user";
const BASE_PACKAGES = ["bash", "ca-certificates", "curl", "git", "procps", "python3"];

/** Looked for at the first figure otherwise, for half a minute */
const FIND_FONTS = "HOME=/root python3 -c 'import matplotlib.font_manager'";
/** What every fork has in its memory: the libraries, and the way to a figure and a table, gone once */
const WARM_PYTHON = `
import matplotlib.pyplot as plt, numpy, pandas
plt.plot([1, 2]); plt.title("warm"); plt.show()
display(pandas.DataFrame({"a": [1]}))
del plt, numpy, pandas
`;
const HOME = "/home/user";

export const BUILT_IN: Record<string, Recipe> = {
  base: {
    image: { name: "e2b-base", packages: BASE_PACKAGES, run: [ADD_USER] },
    snapshot: { memory_mib: 512, warm_up: { exec: [["/bin/bash", "-l", "-c", "true"]] } },
  },
  "code-interpreter-v1": {
    image: {
      name: "e2b-code-interpreter",
      packages: [
        ...BASE_PACKAGES,
        "nodejs",
        "python3-matplotlib",
        "python3-numpy",
        "python3-pandas",
        "python3-pip",
        "python3-requests",
        "python3-scipy",
      ],
      run: [ADD_USER, FIND_FONTS],
    },
    snapshot: {
      memory_mib: 1024,
      warm_up: {
        kernels: [
          { language: "python", cwd: HOME, code: WARM_PYTHON },
          { language: "node", cwd: HOME },
        ],
        timeout_secs: 300,
      },
    },
  },
};
