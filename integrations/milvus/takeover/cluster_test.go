package takeover

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"nuthatch/milvus/internal/ports"
)

const (
	nodes    = 3
	patience = 3 * time.Minute
	// Of a node's log, where the test has failed.
	toldBytes = 8 << 10
)

// node of a cluster, a process.
type node struct {
	args     []string
	url, log string
	// logged is how long the log was when the process was started.
	logged  int64
	process *exec.Cmd
}

// cluster of three nodes on this machine, with the catalog that they keep themselves.
type cluster struct {
	t     *testing.T
	nodes [nodes]*node
}

func freePorts(t *testing.T, count int) []int {
	t.Helper()
	free, err := ports.Free(count)
	if err != nil {
		t.Fatal(err)
	}
	return free
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	binary := os.Getenv("NUTHATCH_BINARY")
	if binary == "" {
		t.Fatal("NUTHATCH_BINARY names no server")
	}
	dir, free := t.TempDir(), freePorts(t, 2*nodes)
	var routes []string
	for _, port := range free[nodes:] {
		routes = append(routes, fmt.Sprintf("127.0.0.1:%d", port))
	}
	c := &cluster{t: t}
	t.Cleanup(c.end)
	for at := range c.nodes {
		c.nodes[at] = &node{
			url: fmt.Sprintf("nats://127.0.0.1:%d", free[at]),
			log: filepath.Join(dir, fmt.Sprintf("n%d.log", at)),
			args: []string{binary, "serve", "-a", "127.0.0.1", "-p", strconv.Itoa(free[at]), "-sd", filepath.Join(dir, fmt.Sprint("n", at)),
				"--node-name", fmt.Sprint("n", at), "--cluster-listen", routes[at], "--routes", strings.Join(routes, ","), "--console", "off"},
		}
		c.start(at)
	}
	// The cluster is founded when all have started.
	for at := range c.nodes {
		c.wait(at)
	}
	return c
}

// start a node.
func (c *cluster) start(at int) {
	c.t.Helper()
	n := c.nodes[at]
	n.process = exec.Command(n.args[0], n.args[1:]...)
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	if n.logged, err = log.Seek(0, io.SeekEnd); err != nil {
		c.t.Fatal(err)
	}
	n.process.Stdout, n.process.Stderr = log, log
	if err := n.process.Start(); err != nil {
		c.t.Fatal(err)
	}
}

// wait until a node that was started takes part.
func (c *cluster) wait(at int) {
	c.t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		log, err := os.ReadFile(c.nodes[at].log)
		if err != nil {
			c.t.Fatal(err)
		}
		if bytes.Contains(log[c.nodes[at].logged:], []byte("keeps the quorum log")) {
			return
		}
	}
	c.t.Fatalf("node %d does not take part", at)
}

// end all nodes; of a test that has failed their logs are told.
func (c *cluster) end() {
	for at, n := range c.nodes {
		if n == nil {
			continue
		}
		c.kill(at)
		if log, err := os.ReadFile(n.log); c.t.Failed() && err == nil {
			c.t.Logf("node %d:\n%s", at, log[max(0, len(log)-toldBytes):])
		}
	}
}

// kill ends a node as a crash does.
func (c *cluster) kill(at int) {
	if n := c.nodes[at]; n.process != nil {
		_ = n.process.Process.Kill()
		_ = n.process.Wait()
		n.process = nil
	}
}

// connect gives a client of a node, which goes to another one where that node ends.
func (c *cluster) connect(at int) *nats.Conn {
	c.t.Helper()
	urls := strings.Join([]string{c.nodes[at].url, c.nodes[(at+1)%nodes].url, c.nodes[(at+2)%nodes].url}, ",")
	conn, err := nats.Connect(urls, nats.DontRandomize(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Timeout(time.Minute))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(conn.Close)
	return conn
}

// owner is the node that leads a stream.
func (c *cluster) owner(conn *nats.Conn, stream string) int {
	c.t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); {
		answer, err := conn.Request("$JS.API.STREAM.INFO."+stream, nil, 5*time.Second)
		if err != nil {
			continue
		}
		var info struct {
			Cluster struct {
				Leader string `json:"leader"`
			} `json:"cluster"`
		}
		if err := json.Unmarshal(answer.Data, &info); err != nil {
			c.t.Fatal(err)
		}
		if at, err := strconv.Atoi(strings.TrimPrefix(info.Cluster.Leader, "n")); err == nil {
			return at
		}
	}
	c.t.Fatal("nobody leads the channel")
	return 0
}
