import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readPodTemplate } from "../../src/agents/pod-template.ts";

type Spec = Record<string, unknown>;

function read(spec: Spec, annotations: Record<string, string> = {}): ReturnType<typeof readPodTemplate> {
  return readPodTemplate({ spec }, "spec.podTemplate", { annotations });
}

function container(more: Spec = {}): Spec {
  return { containers: [{ name: "main", image: "python", ...more }] };
}

function refused(spec: Spec): string[] {
  return read(spec).causes.map(({ field }) => field.replace("spec.podTemplate.spec.", ""));
}

describe("pod templates", () => {
  it("are a fork of the snapshot that the image names, with variables and limits", () => {
    const { wanted, causes } = read(
      container({
        env: [{ name: "A", value: "1" }, { name: "B" }],
        resources: { limits: { cpu: "500m", memory: "256Mi" } },
        volumeMounts: [{ name: "work", mountPath: "/work" }],
      }),
    );
    assert.deepEqual(causes.length, 1, "the volume is missing");
    assert.deepEqual(wanted, {
      snapshot: "python",
      env: { A: "1", B: "" },
      isolation: undefined,
      limits: { cpu_limit: 0.5, memory_limit_mib: 256 },
      directories: [],
    });
    const mounted = read({
      ...container({ volumeMounts: [{ name: "work", mountPath: "/work" }] }),
      volumes: [{ name: "work", emptyDir: {} }],
    });
    assert.deepEqual(mounted.causes, []);
    assert.deepEqual(mounted.wanted.directories, ["/work"]);
  });

  it("take the snapshot from the annotation when the image is one of a registry", () => {
    const spec = { containers: [{ name: "main", image: "registry.example/agents/python:3.12" }] };
    assert.equal(read(spec, { "forkd.dev/snapshot": "team/python" }).wanted.snapshot, "team/python");
    assert.deepEqual(refused(spec), ["containers[0].image"]);
    const onPod = readPodTemplate({ metadata: { annotations: { "forkd.dev/snapshot": "py" } }, spec }, "spec.podTemplate", {
      annotations: {},
    });
    assert.equal(onPod.wanted.snapshot, "py");
    assert.deepEqual(read(spec, { "forkd.dev/snapshot": "a:b" }).causes[0]?.field, "annotation forkd.dev/snapshot");
  });

  it("are refused by the name of each field that a microVM does not have", () => {
    const cases: [Spec, string][] = [
      [{ ...container(), hostNetwork: true }, "hostNetwork"],
      [{ ...container(), hostPID: true }, "hostPID"],
      [{ ...container(), initContainers: [{ name: "i" }] }, "initContainers"],
      [{ ...container(), nodeSelector: { a: "b" } }, "nodeSelector"],
      [{ ...container(), runtimeClassName: "gvisor" }, "runtimeClassName"],
      [{ ...container(), serviceAccountName: "robot" }, "serviceAccountName"],
      [{ ...container(), volumes: [{ name: "v", hostPath: { path: "/" } }] }, "volumes[0].hostPath"],
      [{ ...container(), volumes: [{ name: "v", persistentVolumeClaim: { claimName: "c" } }] }, "volumes[0].persistentVolumeClaim"],
      [{ ...container(), volumes: [{ name: "v", emptyDir: { sizeLimit: "1Gi" } }] }, "volumes[0].emptyDir"],
      [{ ...container(), securityContext: { runAsUser: 1000 } }, "securityContext.runAsUser"],
      [{ ...container(), newField: { x: 1 } }, "newField"],
      [
        {
          containers: [
            { name: "a", image: "python" },
            { name: "b", image: "python" },
          ],
        },
        "containers",
      ],
      [container({ securityContext: { privileged: true } }), "containers[0].securityContext.privileged"],
      [container({ securityContext: { capabilities: { add: ["SYS_ADMIN"] } } }), "containers[0].securityContext.capabilities.add"],
      [container({ command: ["sleep"] }), "containers[0].command"],
      [container({ envFrom: [{ secretRef: { name: "s" } }] }), "containers[0].envFrom"],
      [container({ env: [{ name: "S", valueFrom: { secretKeyRef: {} } }] }), "containers[0].env[0].valueFrom"],
      [container({ resources: { limits: { "nvidia.com/gpu": "1" } } }), "containers[0].resources.limits.nvidia.com/gpu"],
      [container({ resources: { requests: { "nvidia.com/gpu": "1" } } }), "containers[0].resources.requests.nvidia.com/gpu"],
      [container({ resources: { limits: { memory: "much" } } }), "containers[0].resources.limits.memory"],
      [container({ volumeDevices: [{ name: "d" }] }), "containers[0].volumeDevices"],
    ];
    for (const [spec, field] of cases) assert.deepEqual(refused(spec), [field], field);
  });

  it("name every refused field at once", () => {
    assert.deepEqual(refused({ ...container({ command: ["x"] }), hostIPC: true, hostNetwork: true }), [
      "containers[0].command",
      "hostIPC",
      "hostNetwork",
    ]);
  });

  it("accept what asks for nothing, and warn of what has no effect", () => {
    const harmless = {
      ...container({ ports: [{ containerPort: 80 }] }),
      hostNetwork: false,
      initContainers: [],
      nodeSelector: {},
      somethingNew: null,
    };
    const { causes, warnings } = read({ ...harmless, tolerations: [{ key: "x" }] });
    assert.deepEqual(causes, []);
    assert.equal(warnings.length, 2);
    assert.match(warnings.join(), /containers\[0\]\.ports has no effect/);
  });

  it("demand KVM by the runtime class", () => {
    assert.equal(read({ ...container(), runtimeClassName: "forkd-kvm" }).wanted.isolation, "kvm");
    assert.equal(read({ ...container(), runtimeClassName: "forkd" }).wanted.isolation, undefined);
  });

  it("are refused when they are no pod template", () => {
    for (const template of [undefined, null, 1, {}, { spec: [] }])
      assert.deepEqual(
        readPodTemplate(template, "spec.podTemplate", { annotations: {} }).causes.map(({ field }) => field),
        ["spec.podTemplate.spec"],
      );
  });
});
