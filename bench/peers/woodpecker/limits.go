package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/zilliztech/woodpecker/common/config"
)

// What is measured: every size with every parallelism, each for a while.
var (
	limitSizes    = []int{4 << 10, 1 << 20, 4 << 20, 16 << 20}
	limitParallel = []int{1, 4}
)

const limitSpan = time.Second

// limit is a line of the workbench's table of what the machine itself can do.
type limit struct {
	Name   string  `json:"name"`
	MBPerS float64 `json:"mb_per_s"`
	P50Us  float64 `json:"p50_us"`
	P99Us  float64 `json:"p99_us"`
}

// measureLimits puts objects as fast as the store takes them and prints what was reached as JSON:
// into a MinIO of its own below dir, or into the bucket of an address like http://HOST:PORT/BUCKET,
// with the name and password of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
func measureLimits(minioProgram, address, dir string) error {
	what := "MinIO, one drive"
	if address == "" {
		var cfg config.MinioConfig
		server, err := startMinio(minioProgram, dir, &cfg)
		if err != nil {
			return err
		}
		defer func() {
			server.Process.Kill()
			server.Wait()
		}()
		os.Setenv("AWS_ACCESS_KEY_ID", minioUser)
		os.Setenv("AWS_SECRET_ACCESS_KEY", minioPassword)
		address = fmt.Sprintf("http://%s:%d/limits", cfg.Address, cfg.Port)
	} else {
		what = address
	}
	place, err := url.Parse(address)
	if err != nil {
		return err
	}
	client, err := minio.New(place.Host, &minio.Options{
		Creds:  credentials.NewEnvAWS(),
		Secure: place.Scheme == "https",
	})
	if err != nil {
		return err
	}
	bucket := place.Path[min(1, len(place.Path)):]
	if err := makeBucket(client, bucket); err != nil {
		return err
	}
	var limits []limit
	for _, size := range limitSizes {
		for _, parallel := range limitParallel {
			found, err := measurePuts(client, bucket, size, parallel)
			if err != nil {
				return err
			}
			found.Name = fmt.Sprintf("objects: PUT %s, %d at a time (%s)", sizeName(size), parallel, what)
			limits = append(limits, found)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(limits)
}

func makeBucket(client *minio.Client, bucket string) error {
	ctx := context.Background()
	exists, err := client.BucketExists(ctx, bucket)
	if err != nil || exists {
		return err
	}
	return client.MakeBucket(ctx, bucket, minio.MakeBucketOptions{})
}

func sizeName(size int) string {
	if size < 1<<20 {
		return fmt.Sprintf("%d KiB", size>>10)
	}
	return fmt.Sprintf("%d MiB", size>>20)
}

// measurePuts overwrites one object per thread with bytes that do not compress.
func measurePuts(client *minio.Client, bucket string, size, parallel int) (limit, error) {
	body := make([]byte, size)
	if _, err := rand.Read(body); err != nil {
		return limit{}, err
	}
	var (
		mu    sync.Mutex
		took  []time.Duration
		first error
		group sync.WaitGroup
	)
	started := time.Now()
	for thread := range parallel {
		group.Go(func() {
			name := fmt.Sprintf("object-%d", thread)
			for time.Since(started) < limitSpan {
				before := time.Now()
				_, err := client.PutObject(context.Background(), bucket, name, bytes.NewReader(body),
					int64(size), minio.PutObjectOptions{DisableMultipart: true})
				mu.Lock()
				took = append(took, time.Since(before))
				if err != nil && first == nil {
					first = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	group.Wait()
	if first != nil {
		return limit{}, first
	}
	seconds := time.Since(started).Seconds()
	sort.Slice(took, func(a, b int) bool { return took[a] < took[b] })
	at := func(part float64) float64 {
		return float64(took[int(part*float64(len(took)-1))].Nanoseconds()) / 1e3
	}
	return limit{MBPerS: float64(size*len(took)) / seconds / 1e6, P50Us: at(0.5), P99Us: at(0.99)}, nil
}
