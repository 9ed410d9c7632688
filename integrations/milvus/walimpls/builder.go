// Package walimpls is Milvus's write-ahead log on Nuthatch: a pchannel is a channel of the log's own interface,
// its term fences. Importing it registers it with Milvus under [WALName].
package walimpls

import (
	"github.com/milvus-io/milvus/pkg/v2/streaming/util/message"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls/registry"

	"nuthatch/milvus"
)

func init() {
	registry.RegisterBuilder(&builder{})
	message.RegisterMessageIDUnmsarshaler(WALName, UnmarshalMessageID)
}

type builder struct{ config *milvus.Config }

// NewBuilder makes a builder of a log that is there, and not where Milvus's configuration says.
func NewBuilder(config milvus.Config) walimpls.OpenerBuilderImpls { return &builder{config: &config} }

func (b *builder) Name() message.WALName { return WALName }

func (b *builder) Build() (walimpls.OpenerImpls, error) {
	if b.config != nil {
		return newOpener(*b.config)
	}
	config, err := milvus.FromParams()
	if err != nil {
		return nil, err
	}
	return newOpener(config)
}
