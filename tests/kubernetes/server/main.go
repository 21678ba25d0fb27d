// SPDX-License-Identifier: Apache-2.0

// Command pipecd-test-cluster is the control plane of a Kubernetes cluster for
// tests, in one executable: the first argument names the part, the rest are
// that part's own flags. One executable because the parts share most of their
// code: it is built once and is a fraction of the size of four.
package main

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

const parts = "etcd, kube-apiserver, kube-controller-manager, kube-scheduler"

func main() {
	if len(os.Args) < 2 {
		fail("no part of the cluster is named")
	}
	part := os.Args[1]
	os.Args = append([]string{part}, os.Args[2:]...)
	switch part {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	default:
		fail(fmt.Sprintf("%q is no part of the cluster", part))
	}
}

func fail(sentence string) {
	fmt.Fprintf(os.Stderr, "%s; the parts are %s\n", sentence, parts)
	os.Exit(2)
}
