// Command stubregistry serves an OCI registry from memory with one image, whose
// only content is a WebAssembly module that lets every request pass. Envoy Gateway
// fetches the image that kuadrant-operator names for its plugin before it accepts
// the configuration, and the real plugin is published as an image only. An Envoy
// can load the module in its place; what the plugin would ask Authorino, somebody
// else then has to ask.
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

// module is the smallest WebAssembly module that Envoy takes for a plugin: it says
// which version of Proxy-Wasm it speaks, has memory and a function to get some of it,
// and no callback at all, which Envoy takes for "continue" (Proxy-Wasm ABI 0.2.1;
// WebAssembly core specification, section 5.5).
const module = "\x00asm\x01\x00\x00\x00" +
	"\x01\x09\x02" + "\x60\x00\x00" + "\x60\x01\x7f\x01\x7f" + // types: () -> (), (i32) -> i32
	"\x03\x03\x02\x00\x01" + // a function of each
	"\x05\x03\x01\x00\x01" + // a memory of one page
	"\x07\x2d\x03" + // exports
	"\x06memory\x02\x00" +
	"\x17proxy_abi_version_0_2_1\x00\x00" +
	"\x06malloc\x00\x01" +
	"\x0a\x0a\x02" + "\x02\x00\x0b" + "\x05\x00\x41\x80\x08\x0b" // bodies: nothing, and the address 1024

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
	if err := writer.WriteHeader(&tar.Header{Name: "plugin.wasm", Mode: 0o644, Size: int64(len(module))}); err != nil {
		return err
	}
	if _, err := io.WriteString(writer, module); err != nil {
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
