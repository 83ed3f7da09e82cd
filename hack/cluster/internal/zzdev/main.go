package main

import (
	"context"
	"fmt"
	"os"

	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
	"github.com/kiln-dev/kiln/hack/cluster/internal/components"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
	"github.com/kiln-dev/kiln/hack/cluster/internal/progress"
)

func main() {
	store, err := cache.Open()
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	h := env.Host{Root: "/work/main", Store: store, Arch: "amd64", Reporter: progress.New(os.Stdout, "/tmp/c/dev/logs")}
	reg := env.Registry{Push: os.Args[1], Pods: os.Args[1], Nodes: os.Args[1]}
	set, err := components.Build(ctx, &h, reg)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	c := &env.Cluster{Host: h, Kubeconfig: store.Path("cluster", "kubeconfig"), Kubectl: store.Path("cluster", "bin", "kubectl"), Name: "kiln", Registry: reg}
	fmt.Println(components.Install(ctx, c, set), components.WriteFiles(c, set))
}
