package main

import (
	"debug/buildinfo"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/zilliztech/woodpecker/common/config"
)

// How long MinIO may take to start.
const minioTimeout = 30 * time.Second

// Name and password of the MinIO, which only this machine reaches.
const minioUser, minioPassword = "workbench", "workbench"

// startMinio starts one MinIO with one drive below dir and points Woodpecker at it. It ends with
// this process.
func startMinio(program, dir string, cfg *config.MinioConfig) (*exec.Cmd, error) {
	address, err := freeURL()
	if err != nil {
		return nil, err
	}
	cmd, err := startMinioAt(program, dir, address)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address.Host)
	if err != nil {
		return nil, err
	}
	cfg.Address = host
	if cfg.Port, err = strconv.Atoi(port); err != nil {
		return nil, err
	}
	cfg.AccessKeyID, cfg.SecretAccessKey = minioUser, minioPassword
	cfg.BucketName, cfg.CreateBucket, cfg.UseSSL = "woodpecker", true, false
	return cmd, nil
}

// startMinioAt starts one MinIO with one drive below dir. It ends with this process.
func startMinioAt(program, dir string, address url.URL) (*exec.Cmd, error) {
	drive := filepath.Join(dir, "minio")
	if err := os.MkdirAll(drive, 0o755); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "server", "--quiet", "--address", address.Host, drive)
	cmd.Env = append(os.Environ(),
		"MINIO_ROOT_USER="+minioUser, "MINIO_ROOT_PASSWORD="+minioPassword, "MINIO_BROWSER=off")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := waitForMinio(address.String() + "/minio/health/cluster"); err != nil {
		cmd.Process.Kill()
		return nil, err
	}
	return cmd, nil
}

func waitForMinio(url string) error {
	deadline := time.Now().Add(minioTimeout)
	for time.Now().Before(deadline) {
		if answer, err := http.Get(url); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("MinIO did not start within %v", minioTimeout)
}

// minioVersion reads the module's version out of the program: one that "go install" built does not
// know it.
func minioVersion(program string) string {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err.Error()
	}
	return info.Main.Version
}
