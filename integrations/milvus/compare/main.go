// Command compare appends to Milvus's write-ahead log, kept by one engine after the other, through the same
// interface (walimpls), and tells what came through and how long an append took.
//
//	compare -dir DIRECTORY [-engines nuthatch,rmq,wp] [-seconds 8] [-rounds 1] [-server URL]
//
// Engines take turns, each time in a process of its own, and in each round another one begins. A cell is the median of the rounds, with the least and the most.
//
// It contains Woodpecker's directory "server", which is AGPL-3.0 or SSPL-1.0 at your choice, and RocksDB: it is for
// measuring, and not to be given away.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/msgpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap/zapcore"

	"github.com/milvus-io/milvus/pkg/v2/log"
	"github.com/milvus-io/milvus/pkg/v2/mq/mqimpl/rocksmq/server"
	"github.com/milvus-io/milvus/pkg/v2/streaming/util/message"
	"github.com/milvus-io/milvus/pkg/v2/streaming/util/types"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls"
	_ "github.com/milvus-io/milvus/pkg/v2/streaming/walimpls/impls/rmq"
	_ "github.com/milvus-io/milvus/pkg/v2/streaming/walimpls/impls/wp"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls/registry"
	"github.com/milvus-io/milvus/pkg/v2/util/paramtable"

	"nuthatch/milvus"
	_ "nuthatch/milvus/embedded"
	"nuthatch/milvus/internal/ports"
	nuthatch "nuthatch/milvus/walimpls"
)

const recordBytes = 1024

var appenderCounts = []int{1, 16, 256}

var (
	dir     = flag.String("dir", "", "directory for the data of all engines")
	engines = flag.String("engines", "nuthatch,rmq,wp", "which, in this order")
	seconds = flag.Int("seconds", 8, "of each measurement")
	rounds  = flag.Int("rounds", 1, "how often all of them are measured")
	into    = flag.String("into", "", "measures the one engine in this process, and writes the results into this file")
	remote  = flag.String("server", "", "URL of a server for the engine nuthatch-server")
)

func main() {
	flag.Parse()
	if *dir == "" {
		fmt.Fprintln(os.Stderr, "compare: -dir names no directory")
		os.Exit(2)
	}
	if err := run(strings.Split(*engines, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(names []string) error {
	if *into != "" {
		return measureOne(names[0])
	}
	var all []result
	for round := range *rounds {
		first := round % len(names)
		for _, name := range slices.Concat(names[first:], names[:first]) {
			results, err := measureApart(name, fmt.Sprint(name, round))
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, results...)
		}
	}
	fmt.Print(table(names, all))
	return nil
}

// measureApart measures an engine in a process of its own: RocksMQ and Woodpecker keep threads, caches and sessions that end only with it.
func measureApart(name, place string) ([]result, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(*dir, place+".json")
	child := exec.Command(program, "-dir", filepath.Join(*dir, place), "-engines", name, "-seconds", strconv.Itoa(*seconds), "-server", *remote, "-into", file)
	// Milvus writes to the standard output, too.
	child.Stdout, child.Stderr = os.Stderr, os.Stderr
	if err := child.Run(); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var results []result
	return results, json.Unmarshal(text, &results)
}

// measureOne measures an engine in this process.
func measureOne(name string) error {
	log.SetLevel(zapcore.ErrorLevel)
	// Defaults only: no file, no environment, no etcd.
	paramtable.InitWithBaseTable(paramtable.NewBaseTableFromYamlOnly("none"))
	results, err := measureEngine(name, *dir)
	if err != nil {
		return err
	}
	text, err := json.Marshal(results)
	if err != nil {
		return err
	}
	return os.WriteFile(*into, text, 0o600)
}

func measureEngine(name, dir string) ([]result, error) {
	builder, end, err := build(name, dir)
	if err != nil {
		return nil, err
	}
	defer end()
	opener, err := builder.Build()
	if err != nil {
		return nil, err
	}
	defer opener.Close()
	var results []result
	for _, appenders := range appenderCounts {
		channel := types.PChannelInfo{Name: fmt.Sprint("compare-", appenders), Term: 1, AccessMode: types.AccessModeRW}
		w, err := opener.Open(context.Background(), &walimpls.OpenOption{Channel: channel})
		if err != nil {
			return nil, err
		}
		measured, err := measure(name, w, appenders)
		w.Close()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "%s, %d: %.0f/s, p50 %.2f ms, p99 %.2f ms\n", name, appenders, measured.Rate, measured.P50, measured.P99)
		results = append(results, measured)
	}
	return results, nil
}

// build an engine on a directory of its own; end ends what it needs beside.
func build(name, dir string) (walimpls.OpenerBuilderImpls, func(), error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	switch name {
	case "nuthatch":
		config := milvus.Config{Engine: milvus.Embedded, StoreDir: dir, InitializeTimeout: time.Minute}
		return nuthatch.NewBuilder(config), func() {}, nil
	case "nuthatch-server":
		return nuthatch.NewBuilder(milvus.Config{Engine: *remote}), func() {}, nil
	case "rmq":
		if err := server.InitRocksMQ(dir); err != nil {
			return nil, nil, err
		}
		// Its closing aborts the process where a topic is still open, so it ends with the process.
		return registry.MustGetBuilder(message.WALNameRocksmq), func() {}, nil
	case "wp":
		etcd, endpoint, err := startEtcd(filepath.Join(dir, "etcd"))
		if err != nil {
			return nil, nil, err
		}
		params := paramtable.Get()
		for key, value := range map[string]string{
			params.WoodpeckerCfg.StorageType.Key: "local",
			params.WoodpeckerCfg.RootPath.Key:    filepath.Join(dir, "wp"),
			params.EtcdCfg.Endpoints.Key:         endpoint,
		} {
			if err := params.Save(key, value); err != nil {
				return nil, nil, err
			}
		}
		return registry.MustGetBuilder(message.WALNameWoodpecker), etcd.Close, nil
	}
	return nil, nil, fmt.Errorf("no such engine")
}

func record(properties map[string]string) message.MutableMessage {
	return message.NewInsertMessageBuilderV1().
		WithHeader(&message.InsertMessageHeader{CollectionId: 1}).
		WithBody(&msgpb.InsertRequest{
			Base:    &commonpb.MsgBase{MsgType: commonpb.MsgType_Insert},
			RowData: []*commonpb.Blob{{Value: bytes.Repeat([]byte{'x'}, recordBytes)}},
		}).
		WithProperties(properties).
		WithVChannel("v1").
		MustBuildMutable()
}

func measure(name string, w walimpls.WALImpls, appenders int) (result, error) {
	ctx := context.Background()
	msg := record(nil)
	// One append of each before the clock starts.
	if _, err := w.Append(ctx, msg); err != nil {
		return result{}, err
	}
	var (
		mu     sync.Mutex
		took   []time.Duration
		failed error
		group  sync.WaitGroup
	)
	begin := time.Now()
	until := begin.Add(time.Duration(*seconds) * time.Second)
	for range appenders {
		group.Add(1)
		go func() {
			defer group.Done()
			own := make([]time.Duration, 0, 1<<16)
			for at := time.Now(); at.Before(until); {
				_, err := w.Append(ctx, record(nil))
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				now := time.Now()
				own = append(own, now.Sub(at))
				at = now
			}
			mu.Lock()
			took = append(took, own...)
			mu.Unlock()
		}()
	}
	group.Wait()
	if failed != nil {
		return result{}, failed
	}
	rate := float64(len(took)) / time.Since(begin).Seconds()
	slices.Sort(took)
	ms := func(share float64) float64 {
		return float64(took[min(len(took)-1, int(share*float64(len(took))))].Microseconds()) / 1000
	}
	return result{name, appenders, rate, ms(0.5), ms(0.99)}, nil
}

func startEtcd(dir string) (*embed.Etcd, string, error) {
	config := embed.NewConfig()
	config.Dir, config.LogLevel = dir, "error"
	var urls [2]url.URL
	free, err := ports.Free(len(urls))
	if err != nil {
		return nil, "", err
	}
	for at, port := range free {
		urls[at] = url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}
	}
	config.LCUrls, config.ACUrls = urls[:1], urls[:1]
	config.LPUrls, config.APUrls = urls[1:], urls[1:]
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, "", err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, urls[0].Host, nil
	case <-time.After(time.Minute):
		etcd.Close()
		return nil, "", fmt.Errorf("etcd did not start")
	}
}
