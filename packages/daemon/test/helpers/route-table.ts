// Every route of both protocols, with its required scope and the status of an authorized request. A route that is
// missing here fails the matrix, so that the scope of a new route is an explicit decision.

type Declared = Record<string, string>;

/**
 * By name: the scope, and the status with that scope. The requests of the matrix have the body `{}` and no query. The
 * fake manager implements only read operations and refuses all others with 413, which shows that the handler was
 * reached.
 */
export const NATIVE: Declared = {
  ...all("none 200", "getHealth getReadiness"),
  ...all("read 200", "getVersion getMetrics getOpenapi getStatus getEvents getTree getStats getHistory getQuota getCluster"),
  ...all("read 201", "createUiLink"),
  ...all("read 200", "listImages getImage listSnapshots getSnapshot getSnapshotDetails"),
  ...all("read 200", "listRecipes"),
  ...all("read 400", "checkRecipe"),
  ...all("read 200", "listSandboxes getSandbox getSandboxStats getNetwork getSandboxLogs listWorkspaces getWorkspace"),

  ...all("exec 413", "deleteSandbox pingSandbox branchSandbox forkSandbox updateSandbox pauseSandbox suspendSandbox resumeSandbox"),
  ...all("exec 413", "listContexts deleteContext restartContext interruptContext"),
  ...all("exec 413", "listProcesses getProcess killProcess watchProcess writeStdin listPorts"),
  ...all("exec 413", "deleteWorkspace suspendWorkspace resumeWorkspace"),
  ...all("exec 400", "createSandboxes deleteSandboxes execCommand evalCode evalStream setNetwork createContext createWorkspace"),
  ...all(
    "exec 400",
    "readFile writeFile removeFile statFile diskUsage listFiles makeDirectory moveFile copyFile chmodFile chownFile makeSymlink",
  ),
  ...all("exec 400", "watchFiles readTar writeTar startProcess signalProcess resizeProcess"),
  ...all("exec 426", "streamProcess connectPort"),
  ...all("exec 201", "createPreview"),
  ...all("exec 200", "proxyRequest"),

  ...all("admin 200", "listTokens"),
  ...all("admin 204", "deleteUiSessions"),
  ...all("admin 404", "rotateToken deleteToken"),
  ...all("admin 400", "createToken createImage createSnapshot compactSnapshot pushSnapshot pullSnapshot buildRecipe"),
  ...all("admin 413", "deleteImage updateSnapshot deleteSnapshot preparePack readPack unpack listHub"),

  ...all("operator 200", "getConfig listKeys getKey listProjects"),
  ...all("operator 202", "stopDaemon"),
  ...all("operator 400", "createKey createProject"),
  ...all("operator 404", "updateProject deleteProject"),
  ...all("operator 413", "collectGarbage deleteKey"),
  ...all("operator 404", "updateNode drainNode"),
  // with a body of the right form it is 403, except from a gateway: cluster/moves.test.ts
  ...all("operator 400", "moveSandbox"),
};

/** E2B's API, by method and path; `address`: the URL has a token of its own, and no other is enough */
export const CONTROL: Declared = {
  ...both("GET /sandboxes", "read 200"),
  ...both("POST /sandboxes", "exec 400"),
  ...both("POST /sandboxes/:id/connect", "exec 200"),
  "POST /sandboxes/:id/resume": "exec 200",
  "GET /sandboxes/metrics": "read 200",
  "GET /sandboxes/:id": "read 200",
  "DELETE /sandboxes/:id": "exec 413",
  "POST /sandboxes/:id/timeout": "exec 400",
  "POST /sandboxes/:id/refreshes": "exec 204",
  "POST /sandboxes/:id/pause": "exec 413",
  "PUT /sandboxes/:id/network": "exec 413",
  "GET /sandboxes/:id/metrics": "read 413",
  ...both("GET /sandboxes/:id/logs", "read 200"),
  "POST /sandboxes/:id/fork": "exec 413",
  "POST /sandboxes/:id/snapshots": "exec 413",
  "GET /snapshots": "read 200",
  ...both("GET /templates", "read 200"),
  "POST /v2/templates": "admin 400",
  "POST /v3/templates": "admin 400",
  "GET /templates/:id/files/:hash": "admin 201",
  "PUT /templates/:id/files/:hash": "address 401",
  "POST /v2/templates/:id/builds/:build": "admin 404",
  "GET /templates/:id/builds/:build/status": "read 404",
  "GET /templates/aliases/:alias": "read 200",
  "POST /templates/tags": "admin 400",
  "DELETE /templates/tags": "admin 400",
  "GET /templates/:id/tags": "read 200",
  "GET /templates/:id": "read 200",
  "DELETE /templates/:id": "admin 413",
  ...without("secrets", "volumes", "volumecontent", "teams", "nodes", "events", "api-keys", "access-tokens"),
};

/**
 * E2B's servers in a sandbox, by method and path; `health`: open to every client that has the id. The others need the
 * access token
 */
export const ENVD: Declared = {
  "GET /health": "health 204",
  "GET /envs": "access 413",
  "GET /metrics": "access 413",
  "GET /files": "access 413",
  "POST /files": "access 413",
  // the fake's error has no Connect code
  ...calls("filesystem.Filesystem", "Stat MakeDir ListDir Remove WatchDir CreateWatcher", "access 500"),
  ...calls("filesystem.Filesystem", "Move GetWatcherEvents RemoveWatcher", "access 400"),
  ...calls("process.Process", "List", "access 500"),
  ...calls("process.Process", "Start Connect SendInput CloseStdin SendSignal Update", "access 400"),
};

export const INTERPRETER: Declared = {
  "GET /health": "health 200",
  "POST /execute": "access 400",
  "GET /contexts": "access 413",
  "POST /contexts": "access 413",
  "DELETE /contexts/:context": "access 413",
  "POST /contexts/:context/restart": "access 413",
};

function all(declared: string, names: string): Declared {
  return Object.fromEntries(names.split(" ").map((name) => [name, declared]));
}

function both(route: string, declared: string): Declared {
  return { [route]: declared, [route.replace(" ", " /v2")]: declared };
}

function calls(service: string, names: string, declared: string): Declared {
  return Object.fromEntries(names.split(" ").map((name) => [`POST /${service}/${name}`, declared]));
}

/** Resources of E2B that forkd does not implement: 501 for all callers with the scope `read` */
function without(...nouns: string[]): Declared {
  const methods = ["GET", "POST", "PUT", "PATCH", "DELETE"];
  const paths = nouns.flatMap((noun) => [`/${noun}`, `/${noun}/:a`, `/${noun}/:a/:b`]);
  return Object.fromEntries(methods.flatMap((method) => paths.map((path) => [`${method} ${path}`, "read 501"])));
}

/**
 * Routes on which an admin of another project gets the same status as one of this project: they name nothing of it. All
 * others are 404 for that admin
 */
export const ANY_PROJECT = new Set([
  ..."getHealth getReadiness getVersion getMetrics getOpenapi getStatus getEvents getTree getStats getHistory getQuota getCluster".split(
    " ",
  ),
  ..."createUiLink listImages listSnapshots listRecipes listSandboxes listWorkspaces listTokens deleteUiSessions".split(" "),
  ..."unpack listHub streamProcess connectPort".split(" "),
  "GET /sandboxes",
  "GET /v2/sandboxes",
  "GET /sandboxes/metrics",
  "GET /snapshots",
  "GET /templates",
  "GET /v2/templates",
  "GET /templates/:id/files/:hash",
  "PUT /templates/:id/files/:hash",
]);
