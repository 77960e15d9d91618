import assert from "node:assert/strict";
import { access, constants } from "node:fs/promises";
import { test } from "node:test";
import { kvmAdvice, lookAtKvm, type KvmFacts } from "../../src/probe/kvm-advice.ts";

const HOST: KvmFacts = { device: "missing", group: null, gid: null, user: "ada", isContainer: false, isGuest: false, extension: null };

const CASES: [what: string, facts: Partial<KvmFacts>, advice: RegExp][] = [
  ["a user outside of the group", { device: "denied", group: "kvm", gid: 106 }, /^sudo usermod -aG kvm ada, then log in again$/],
  ["a device of root alone", { device: "denied" }, /chown root:kvm \/dev\/kvm .*chmod 660/],
  ["an Intel host without the module", { extension: "vmx" }, /^sudo modprobe kvm_intel; .*firmware/],
  ["an AMD host without the module", { extension: "svm" }, /^sudo modprobe kvm_amd; .*firmware/],
  ["a processor that does not offer it", {}, /^Switch on virtualisation \(VT-x, AMD-V or SVM\) in the firmware/],
  ["a VM without nested virtualisation", { isGuest: true }, /nested virtualisation/],
  ["a container without the device", { isContainer: true, isGuest: true }, /--device \/dev\/kvm --group-add "\$\(stat -c %g \/dev\/kvm\)"/],
  [
    "a container without its group",
    { isContainer: true, device: "denied", group: "106", gid: 106 },
    /--device \/dev\/kvm --group-add 106;/,
  ],
  ["a host on which the trial fails", { device: "open", extension: "vmx" }, /VirtualBox/],
  ["a VM in which the trial fails", { device: "open", isGuest: true }, /nested virtualisation completely/],
];

for (const [what, facts, advice] of CASES)
  test(`the advice for ${what}`, () => {
    assert.match(kvmAdvice({ ...HOST, ...facts }), advice);
  });

test("the facts of this host match the host", async () => {
  const facts = await lookAtKvm();
  const device = await access("/dev/kvm", constants.R_OK | constants.W_OK).then(
    () => "open",
    (error: NodeJS.ErrnoException) => (error.code === "ENOENT" ? "missing" : "denied"),
  );
  assert.equal(facts.device, device);
  assert.notEqual(facts.user, "");
});
