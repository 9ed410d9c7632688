package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/zilliztech/woodpecker/common/config"
	"github.com/zilliztech/woodpecker/common/etcd"
	"github.com/zilliztech/woodpecker/woodpecker"
	"go.etcd.io/etcd/server/v3/embed"
)

// Nodes of a service, and the first ports of each kind, as in Woodpecker's docker-compose.yaml and
// in service.yaml.
const (
	serviceNodes = 3
	servicePort  = 18080
	gossipPort   = 17946
	metricsPort  = 9091
	etcdAddress  = "127.0.0.1:2379"
	etcdPeers    = "127.0.0.1:2380"
	minioAddress = "127.0.0.1:9000"
)

// How long the nodes may take to start, and to find each other.
const serviceTimeout = 60 * time.Second

//go:embed service.yaml
var serviceSettings []byte

// service is three nodes of Woodpecker, its etcd and its MinIO, each a process, and a client.
type service struct {
	children []*exec.Cmd
	client   woodpecker.Client
	logs     int
}

// serviceReady is what is said once, when all processes run.
type serviceReady struct {
	Version string `json:"version"`
	Nodes   []int  `json:"nodes"`
	Etcd    int    `json:"etcd"`
	Store   int    `json:"store"`
}

// runService starts a service below dir, measures the loads that come as lines of JSON, and answers
// each with two; it ends with its input. Everything is in a network namespace of its own.
func runService(dir string) error {
	if !alone() {
		code, err := runAlone()
		if err == nil {
			os.Exit(code)
		}
		return fmt.Errorf("no network namespace of its own: %w", err)
	}
	if err := raiseLoopback(); err != nil {
		return fmt.Errorf("the loopback of the network namespace: %w", err)
	}
	// What Woodpecker's client logs on standard output must not come between the answers.
	answers := json.NewEncoder(os.Stdout)
	os.Stdout = os.Stderr
	s := &service{}
	defer s.close()
	ready, err := s.start(dir)
	if err != nil {
		return err
	}
	if err := answers.Encode(ready); err != nil {
		return err
	}
	// Who asks may have gone in the middle of a load.
	ctx, cancel := context.WithCancelCause(context.Background())
	requests := make(chan load)
	go func() {
		defer close(requests)
		cancel(readRequests(os.Stdin, requests))
	}()
	for asked := range requests {
		if err := s.measure(ctx, asked, answers.Encode); err != nil {
			return err
		}
	}
	if err := context.Cause(ctx); err != io.EOF {
		return err
	}
	return nil
}

// readRequests passes on what is asked until there is nothing more, which is io.EOF, or nonsense.
func readRequests(from io.Reader, requests chan<- load) error {
	decoder := json.NewDecoder(from)
	for {
		var asked load
		if err := decoder.Decode(&asked); err != nil {
			return err
		}
		requests <- asked
	}
}

func (s *service) start(dir string) (*serviceReady, error) {
	files := []string{filepath.Join(dir, "woodpecker.yaml"), filepath.Join(dir, "service.yaml")}
	for at, content := range [][]byte{settings, serviceSettings} {
		if err := os.WriteFile(files[at], content, 0o644); err != nil {
			return nil, err
		}
	}
	cfg, err := config.NewConfiguration(files...)
	if err != nil {
		return nil, err
	}
	cfg.Log.Level = "error"
	metadata, err := s.child(dir, "etcd", nil, "/proc/self/exe", "-etcd", filepath.Join(dir, "etcd"))
	if err != nil {
		return nil, err
	}
	store, err := startMinioAt(*minioProgram, dir, url.URL{Scheme: "http", Host: minioAddress})
	if err != nil {
		return nil, err
	}
	s.children = append(s.children, store)
	ready := &serviceReady{Version: versions(), Etcd: metadata.Process.Pid, Store: store.Process.Pid}
	for at := range serviceNodes {
		node, err := s.startNode(dir, at, files)
		if err != nil {
			return nil, err
		}
		ready.Nodes = append(ready.Nodes, node.Process.Pid)
	}
	if err := waitForNodes(); err != nil {
		return nil, err
	}
	return ready, s.connect(cfg)
}

// startNode starts a node as Woodpecker's start script does.
func (s *service) startNode(dir string, at int, files []string) (*exec.Cmd, error) {
	name := fmt.Sprintf("n%d", at)
	seeds := ""
	for other := range serviceNodes {
		seeds += fmt.Sprintf(",127.0.0.1:%d", gossipPort+other)
	}
	metrics := fmt.Sprintf("METRICS_PORT=%d", metricsPort+at)
	return s.child(dir, name, []string{metrics, "CLUSTER_NAME=woodpecker-cluster"}, *nodeProgram, "server",
		"-node-name", name, "-data-dir", filepath.Join(dir, name), "-seeds", seeds[1:],
		"-config", files[0], "-external-default-config", "", "-external-user-config", files[1],
		"-service-port", fmt.Sprint(servicePort+at), "-gossip-port", fmt.Sprint(gossipPort+at),
		"-advertise-service-addr", fmt.Sprintf("127.0.0.1:%d", servicePort+at),
		"-advertise-gossip-addr", fmt.Sprintf("127.0.0.1:%d", gossipPort+at))
}

// child starts a process that ends with this one and logs to NAME.log.
func (s *service) child(dir, name string, env []string, program string, args ...string) (*exec.Cmd, error) {
	file, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.children = append(s.children, cmd)
	return cmd, nil
}

// waitForNodes waits until every node knows all of them.
func waitForNodes() error {
	deadline := time.Now().Add(serviceTimeout)
	for at := range serviceNodes {
		for members(at) != serviceNodes {
			if time.Now().After(deadline) {
				return fmt.Errorf("node %d does not see all nodes after %v", at, serviceTimeout)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

// members that a node knows, itself included; 0 while it does not answer.
func members(at int) int {
	request, err := http.NewRequest("GET", fmt.Sprintf("http://127.0.0.1:%d/admin/memberlist", metricsPort+at), nil)
	if err != nil {
		return 0
	}
	request.Header.Set("Accept", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	var list struct {
		Members []json.RawMessage `json:"members"`
	}
	if json.NewDecoder(answer.Body).Decode(&list) != nil {
		return 0
	}
	return len(list.Members)
}

func (s *service) connect(cfg *config.Configuration) error {
	metadata, err := etcd.GetRemoteEtcdClient([]string{etcdAddress})
	if err != nil {
		return err
	}
	s.client, err = woodpecker.NewClient(context.Background(), cfg, metadata, true)
	return err
}

func (s *service) close() {
	if s.client != nil {
		s.client.Close(context.Background())
	}
	for _, child := range s.children {
		child.Process.Kill()
		child.Wait()
	}
}

// serveEtcd is the etcd of a service: a process of its own, set as in Woodpecker's docker-compose.yaml.
func serveEtcd(dir string) error {
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel = dir, "info"
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModeRevision, "1000"
	cfg.QuotaBackendBytes, cfg.SnapshotCount = 4<<30, 50000
	clients := []url.URL{{Scheme: "http", Host: etcdAddress}}
	peers := []url.URL{{Scheme: "http", Host: etcdPeers}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = clients, clients
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peers, peers
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer server.Close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	return nil
}
