// Package plugins pins what run.sh tests: kine, which gives etcd's interface on NATS, with its own tests of that part.
package plugins

import (
	_ "github.com/k3s-io/kine/pkg/app"
	_ "github.com/k3s-io/kine/pkg/drivers/nats"
)
