// Package embedded gives Milvus a log in its own process. Import it for its effect. It needs the C library of
// Nuthatch (packaging/c-library.sh), which it finds by pkg-config.
package embedded

import (
	"nuthatch/embed"
	"nuthatch/milvus"
)

func init() {
	milvus.RegisterEmbedded(func(config milvus.Config) (milvus.Broker, error) {
		options := embed.Options{
			StoreDir: config.StoreDir, MaxFileStore: config.MaxFileStore, MaxPayload: config.MaxPayload,
			InitializeTimeout: config.InitializeTimeout, Extra: config.Extra,
		}
		if options.MaxPayload == 0 {
			options.MaxPayload = 8 << 20
		}
		return embed.Start(options)
	})
}
