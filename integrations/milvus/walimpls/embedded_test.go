//go:build test && cgo

package walimpls

import (
	"testing"
	"time"

	"nuthatch/milvus"
	_ "nuthatch/milvus/embedded"
)

func init() {
	places["embedded"] = func(t *testing.T) milvus.Config {
		return milvus.Config{Engine: milvus.Embedded, StoreDir: t.TempDir(), InitializeTimeout: time.Minute}
	}
}
