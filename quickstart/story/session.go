package story

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"

	"accesspolicy-operator/test/stack"
)

// session is a stack.T for a program that is no test.
type session struct {
	errors, details io.Writer

	mu sync.Mutex
	// over is set when an interruption ends it: what goes wrong then is no failure.
	over, failed bool
	cleanups     []func()
}

var _ stack.T = (*session)(nil)

// Run calls f with something that the stack takes for a test, and ends all that f has
// started when f returns, or when interrupted is closed, whichever comes first. It
// reports whether f came to its end without a failure. What has failed is written to
// errors, what helps to find out why to details.
func Run(errors, details io.Writer, interrupted <-chan struct{}, f func(stack.T)) bool {
	s := &session{errors: errors, details: details}
	done := make(chan struct{})
	finished := false

	go func() {
		defer close(done)
		f(s)

		finished = true
	}()

	select {
	case <-done:
		s.end()

		return finished && !s.Failed()
	case <-interrupted:
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
		s.end()

		return false
	}
}

// end calls what was registered, the last one first, also what is registered meanwhile.
func (s *session) end() {
	for {
		s.mu.Lock()
		if len(s.cleanups) == 0 {
			s.mu.Unlock()

			return
		}

		last := s.cleanups[len(s.cleanups)-1]
		s.cleanups = s.cleanups[:len(s.cleanups)-1]
		s.mu.Unlock()
		last()
	}
}

func (s *session) Helper() {}

func (s *session) Logf(format string, args ...any) { s.write(s.details, format, args...) }

func (s *session) write(to io.Writer, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.over {
		fmt.Fprintf(to, format+"\n", args...)
	}
}

func (s *session) Errorf(format string, args ...any) {
	s.write(s.errors, format, args...)
	s.write(s.details, format, args...)

	s.mu.Lock()
	defer s.mu.Unlock()

	s.failed = !s.over
}

func (s *session) Fatal(args ...any) {
	s.Errorf("%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
	runtime.Goexit()
}

func (s *session) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}

func (s *session) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.failed
}

func (s *session) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.cleanups = append(s.cleanups, f)
}

func (s *session) TempDir() string {
	folder, err := os.MkdirTemp("", "accesspolicy-quickstart-*")
	if err != nil {
		s.Fatal(err)
	}

	s.Cleanup(func() { _ = os.RemoveAll(folder) })

	return folder
}
