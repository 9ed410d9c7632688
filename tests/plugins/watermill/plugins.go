// Package plugins pins what run.sh tests: Watermill's connector to NATS, whose own suite runs against our server.
package plugins

import (
	_ "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/jetstream"
	_ "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
)
