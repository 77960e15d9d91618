// Objects of Kubernetes as JSON, as far as tests read them.

export type Metadata = { name?: string; uid?: string; generation?: number };
export type AnyObject = { apiVersion?: string; kind?: string; metadata?: Metadata };

export type Container = { resources?: { limits?: Record<string, string> } };
type NodeSelectorTerm = { matchFields?: { values?: string[] }[] };
export type PodSpec = {
  containers: Container[];
  nodeName?: string;
  serviceAccountName?: string;
  serviceAccount?: string;
  affinity?: {
    nodeAffinity?: { requiredDuringSchedulingIgnoredDuringExecution?: { nodeSelectorTerms: NodeSelectorTerm[] } };
  };
};
export type Pod = AnyObject & { spec?: PodSpec };
export type DaemonSet = AnyObject & {
  spec?: { template: { spec?: PodSpec } };
  status?: { desiredNumberScheduled: number };
};
export type Autoscaler = AnyObject & { spec?: { minReplicas?: number } };
export type Role = AnyObject & {
  rules?: { apiGroups?: string[]; resources?: string[]; verbs: string[]; resourceNames?: string[] }[] | null;
};
export type Secret = AnyObject & { data?: Record<string, string> };
export type Lease = AnyObject & { spec?: { holderIdentity?: string } };
