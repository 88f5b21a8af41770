// Command stubregistry serves an OCI registry from memory with one image, whose
// only content is an empty WebAssembly module. Envoy Gateway fetches the image
// that kuadrant-operator names for its plugin before it accepts the
// configuration, and the real plugin is published as an image only; where no
// Envoy runs, an empty module in its place changes nothing that a test can see.
//
//	stubregistry [-listen 127.0.0.1:5000]
//
// It prints the reference of the image when it serves, and runs until it is
// interrupted.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The magic number and the version: the smallest module there is (WebAssembly
// core specification, section 5.5.16).
const emptyModule = "\x00asm\x01\x00\x00\x00"

func main() {
	listen := flag.String("listen", "127.0.0.1:5000", "address to serve on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "stubregistry:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen string) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           registry.New(registry.Logger(log.New(io.Discard, "", 0))),
		ReadHeaderTimeout: 10 * time.Second,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return err
	}
	// The library speaks plain HTTP to the host name localhost, and only to it.
	reference := "localhost:" + port + "/wasm-shim:stub"
	if err := push(ctx, reference); err != nil {
		return err
	}
	fmt.Println("oci://" + reference)
	select {
	case <-ctx.Done():
		return server.Close()
	case err := <-failed:
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	}
}

func push(ctx context.Context, reference string) error {
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	if err := writer.WriteHeader(&tar.Header{Name: "plugin.wasm", Mode: 0o644, Size: int64(len(emptyModule))}); err != nil {
		return err
	}
	if _, err := io.WriteString(writer, emptyModule); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	})
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	parsed, err := name.ParseReference(reference)
	if err != nil {
		return err
	}
	return remote.Write(parsed, image, remote.WithContext(ctx))
}
