// Command mcpserver serves MCP over streamable HTTP: a few tools, some of which no
// agent should be let near, one that asks the user before it answers, a prompt and a
// resource. Nothing that they say is true: no database is there. The broker of
// mcp-gateway federates it in tests and in the quickstart.
//
//	mcpserver [-listen 127.0.0.1:8000]
//
// It runs until it is interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "address to serve on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "mcpserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen string) error {
	mcpServer := newServer()
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return mcpServer }, nil))
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Addr: listen, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		// Streams may be open.
		_ = server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type numbers struct {
	A int `json:"a"`
	B int `json:"b"`
}

type message struct {
	Text string `json:"text"`
}

func newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "mcpserver", Version: "1"}, nil)
	addTool(server, "add", "adds", func(in numbers) mcp.Content { return text(fmt.Sprint(in.A + in.B)) })
	addTool(server, "subtract", "subtracts", func(in numbers) mcp.Content { return text(fmt.Sprint(in.A - in.B)) })
	addTool(server, "get-sum", "adds, in words", func(in numbers) mcp.Content {
		return text(fmt.Sprintf("The sum of %d and %d is %d.", in.A, in.B, in.A+in.B))
	})
	addTool(server, "echo", "says it again", func(in message) mcp.Content { return text("Echo: " + in.Text) })
	addTool(server, "send_email", "sends an e-mail", func(message) mcp.Content { return text("e-mail sent") })
	addTool(server, "delete_database", "deletes everything", func(struct{}) mcp.Content { return text("database deleted") })
	addTool(server, "get-tiny-image", "shows a dot", func(struct{}) mcp.Content { return &mcp.ImageContent{Data: dot, MIMEType: "image/gif"} })
	mcp.AddTool(server, &mcp.Tool{Name: "ask", Description: "asks the user"}, ask)
	server.AddPrompt(&mcp.Prompt{Name: "greeting"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: text("hello")}}}, nil
	})
	server.AddResource(&mcp.Resource{Name: "readme", URI: "file:///readme", MIMEType: "text/plain"},
		func(_ context.Context, request *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: request.Params.URI, MIMEType: "text/plain", Text: "read me"}}}, nil
		})
	return server
}

// dot is a GIF with one transparent dot.
var dot = []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;")

// addTool adds a tool that needs no more than its arguments.
func addTool[In any](server *mcp.Server, name, description string, do func(In) mcp.Content) {
	mcp.AddTool(server, &mcp.Tool{Name: name, Description: description}, func(_ context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{do(in)}}, nil, nil
	})
}

// ask returns what the user did with the question.
func ask(ctx context.Context, request *mcp.CallToolRequest, _ numbers) (*mcp.CallToolResult, any, error) {
	answer, err := request.Session.Elicit(ctx, &mcp.ElicitParams{Message: "sure?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}})
	if err != nil {
		return nil, nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{text(answer.Action)}}, nil, nil
}

func text(s string) mcp.Content { return &mcp.TextContent{Text: s} }
