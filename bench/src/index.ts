// The benchmarks; the CLI prints what they return.

export { benchBranch } from "./branch.ts";
export { branchChart, evalChart, fanoutChart } from "./charts.ts";
export { benchCluster, clusterPlots } from "./cluster.ts";
export { benchDaemon } from "./daemon.ts";
export { benchE2b } from "./e2b.ts";
export { benchEval } from "./eval.ts";
export { benchFanout } from "./fanout.ts";
export { benchGateway } from "./gateway.ts";
export { benchHub } from "./hub.ts";
export { benchInside } from "./inside.ts";
export { benchKvm, figuresOf, kvmText } from "./kvm.ts";
export { benchPack } from "./pack.ts";
export { describeMachine } from "./machine.ts";
export { median } from "./stats.ts";
export { inTurns } from "./turns.ts";

export type { BranchReport, BranchRow } from "./branch.ts";
export type { ClusterReport } from "./cluster.ts";
export type { DaemonReport } from "./daemon.ts";
export type { E2bReport } from "./e2b.ts";
export type { EvalReport } from "./eval.ts";
export type { FanoutReport } from "./fanout.ts";
export type { GatewayReport } from "./gateway.ts";
export type { Goal } from "./goals.ts";
export type { HubReport } from "./hub.ts";
export type { InsideReport } from "./inside.ts";
export type { KvmReport } from "./kvm.ts";
export type { Host, Machine } from "./machine.ts";
export type { PackReport } from "./pack.ts";
export type { BenchOptions } from "./setup.ts";
