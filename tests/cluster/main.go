// The control plane of a Kubernetes cluster and its command line, in one binary: most of their code is the same.
//
// Usage: forkd-cluster etcd|kube-apiserver|kube-controller-manager|kubectl OPTION...
package main

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	if len(os.Args) < 2 {
		fail("a component is missing")
	}
	component := os.Args[1]
	// Each component reads its options from os.Args.
	os.Args = append([]string{component}, os.Args[2:]...)
	switch component {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(manager.NewControllerManagerCommand()))
	case "kubectl":
		os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
	default:
		fail("there is no component " + component)
	}
}

func fail(why string) {
	fmt.Fprintf(os.Stderr, "forkd-cluster: %s: etcd, kube-apiserver, kube-controller-manager and kubectl are there\n", why)
	os.Exit(2)
}
