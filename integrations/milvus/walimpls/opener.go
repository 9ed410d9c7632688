package walimpls

import (
	"context"

	"github.com/milvus-io/milvus/pkg/v2/streaming/util/types"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls/helper"

	"nuthatch/embed/logs"
	"nuthatch/milvus"
)

// opener has a connection for appends and one for reads, so that neither waits behind the other.
type opener struct {
	appends, reads *milvus.Connection
	options        logs.Options
}

func newOpener(config milvus.Config) (walimpls.OpenerImpls, error) {
	appends, err := milvus.Open(config, "milvus wal")
	if err != nil {
		return nil, err
	}
	reads, err := milvus.Open(config, "milvus wal readers")
	if err != nil {
		appends.Close()
		return nil, err
	}
	return &opener{appends: appends, reads: reads, options: logs.Options{Tags: config.Tags, Replicas: config.Replicas}}, nil
}

func (o *opener) Open(ctx context.Context, option *walimpls.OpenOption) (walimpls.WALImpls, error) {
	if err := option.Validate(); err != nil {
		return nil, err
	}
	// Milvus's terms begin at 0, a writer's at 1.
	term := uint64(option.Channel.Term) + 1
	w := &wal{WALHelper: helper.NewWALHelper(option)}
	if option.Channel.AccessMode == types.AccessModeRW {
		writer, err := logs.Open(ctx, o.appends.Conn, option.Channel.Name, term, logs.ReadWrite, o.options)
		if err != nil {
			return nil, fenced(err)
		}
		w.writer = writer
	}
	reader, err := logs.Open(ctx, o.reads.Conn, option.Channel.Name, term, logs.ReadOnly, o.options)
	if err != nil {
		w.Close()
		return nil, err
	}
	w.reader = reader
	return w, nil
}

func (o *opener) Close() {
	o.appends.Close()
	o.reads.Close()
}
