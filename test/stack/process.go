package stack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	loopback = "127.0.0.1"

	pollEvery = 50 * time.Millisecond
	// startLimit is generous: a busy machine is not a failure.
	startLimit = 90 * time.Second
	// stopLimit is how long a component may take to end by itself before it is
	// killed. An API server with open watches takes longer than any test wants.
	stopLimit = 3 * time.Second
	logTail   = 40

	// Ports are taken from below the range that the kernel gives to outgoing
	// connections (32768 and up): none of those can take the port of a component
	// while it restarts. Above are Envoy Gateway's fixed ports (18000 to 19001).
	firstPort = 20000
	lastPort  = 32000
)

// ports hands out each port once in this process, so that two components that
// start at the same time cannot be given the same one.
var ports = struct {
	sync.Mutex
	next int
}{next: firstPort + os.Getpid()%(lastPort-firstPort)}

// FreeAddress returns an address of loopback, host and port, on which nobody
// listens, neither there nor on all interfaces, and which is given out once.
func FreeAddress(t T) string {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()

	for range lastPort - firstPort {
		port := strconv.Itoa(ports.next)

		ports.next++
		if ports.next == lastPort {
			ports.next = firstPort
		}

		listener, err := net.Listen("tcp", ":"+port)
		if err != nil {
			continue
		}

		must(t, listener.Close())

		return net.JoinHostPort(loopback, port)
	}

	t.Fatalf("no free port between %d and %d", firstPort, lastPort)

	return ""
}

// portOf is the port of an address that FreeAddress returned.
func portOf(address string) string { return strings.TrimPrefix(address, loopback+":") }

// process is a component that runs, or that can be started again.
type process struct {
	name    string
	path    string
	args    []string
	env     []string
	root    string // what it sees as /, unless empty
	logFile string

	command *exec.Cmd
	ended   chan struct{} // closed when the command has ended
}

// newProcess prepares a program, with a log in the folder. It is killed when the
// test ends; the end of its log is printed if the test failed.
func newProcess(t T, folder, path string, args ...string) *process {
	t.Helper()

	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}

	// Several processes may run the same program.
	log, err := os.CreateTemp(folder, filepath.Base(path)+"-*.log")
	must(t, err)
	must(t, log.Close())

	p := &process{name: filepath.Base(path), path: path, args: args, logFile: log.Name()}

	p.endWith(t)

	return p
}

// endWith ends the process with the test, and prints the end of its log if the test
// failed.
func (p *process) endWith(t T) {
	t.Helper()
	t.Cleanup(func() {
		if err := p.kill(); err != nil {
			t.Errorf("kill %s: %v", p.name, err)
		}

		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", p.name, p.tail())
		}
	})
}

// start runs the component; its output goes to the end of its log.
func (p *process) start() error {
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	command := exec.Command(p.path, p.args...)
	command.Env = append(os.Environ(), p.env...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: p.root}
	dieWithParent(command.SysProcAttr)

	started, ended := make(chan error, 1), make(chan struct{})

	go func() {
		// The kernel kills the child when the thread that made it ends, so this
		// thread has to stay until the child has ended.
		runtime.LockOSThread()
		defer close(ended)
		defer log.Close()

		err := command.Start()
		started <- err

		if err == nil {
			// How it ended is in its log; whether it was meant to end, its owner
			// knows.
			_ = command.Wait()
		}
	}()

	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}

	p.command, p.ended = command, ended

	return nil
}

// kill ends the component at once, as a crash would.
func (p *process) kill() error {
	if !p.running() {
		return nil
	}

	if err := p.command.Process.Kill(); err != nil && p.running() {
		return err
	}

	<-p.ended

	return nil
}

// stop asks the component to end and kills it if it does not.
func (p *process) stop() error {
	if !p.running() {
		return nil
	}

	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && p.running() {
		return err
	}

	select {
	case <-p.ended:
		return nil
	case <-time.After(stopLimit):
		return p.kill()
	}
}

func (p *process) running() bool {
	if p.ended == nil {
		return false
	}

	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// mustStart starts the component and waits until ready holds.
func (p *process) mustStart(t T, ready func(context.Context) error) {
	t.Helper()

	if err := p.start(); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()

	for {
		err := ready(ctx)
		if err == nil {
			return
		}

		select {
		case <-p.ended:
			t.Fatalf("%s ended before it was ready: %v", p.name, p.command.ProcessState)
		case <-ctx.Done():
			t.Fatalf("%s is not ready after %s: %v", p.name, startLimit, err)
		case <-time.After(pollEvery):
		}
	}
}

// tail is the end of the component's log.
func (p *process) tail() string {
	content, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}

	lines := strings.Split(string(bytes.TrimSpace(content)), "\n")

	return strings.Join(lines[max(0, len(lines)-logTail):], "\n")
}

// answers is ready when a GET of the URL is answered with 200.
func answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := get(ctx, url)

		return err
	}
}

// get returns the body of the answer to a GET, which has to be a 200.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()

	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, body)
	}

	return string(body), err
}

// Eventually repeats try until it returns no error; what says in words what the
// test waits for.
func Eventually(t T, limit time.Duration, what string, try func(context.Context) error) {
	t.Helper()

	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()

	for {
		err := try(ctx)
		if err == nil {
			return
		}

		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		case <-time.After(pollEvery):
		}
	}
}
