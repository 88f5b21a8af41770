package v1alpha1

// MCPAttributes are conditions on the MCP message in a request.
type MCPAttributes struct {
	// methods are MCP methods, one of which the message has to call. Empty or
	// left out, every method matches with SKIP_BASE_PROTOCOL_METHODS, and only
	// the base protocol with MATCH_BASE_PROTOCOL_METHODS (upstream's
	// conformance test XAccessPolicyBaseProtocolMatch).
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	Methods []MCPMethod `json:"methods,omitempty"`

	// mcpBaseProtocolMethodsOption says whether the messages that a session
	// needs match as well: initialize, tools/list, ping, completion/*,
	// logging/*, notifications/*, GET for the event stream, and DELETE with an
	// mcp-session-id header.
	//
	// +optional
	// +kubebuilder:default=SKIP_BASE_PROTOCOL_METHODS
	MCPBaseProtocolMethodsOption MCPBaseProtocolMethodsOption `json:"mcpBaseProtocolMethodsOption,omitempty"`
}

// MCPBaseProtocolMethodsOption says whether the base protocol matches.
//
// +kubebuilder:validation:Enum=SKIP_BASE_PROTOCOL_METHODS;MATCH_BASE_PROTOCOL_METHODS
type MCPBaseProtocolMethodsOption string

const (
	// MCPBaseProtocolMethodsOptionSkip matches only what methods say.
	MCPBaseProtocolMethodsOptionSkip MCPBaseProtocolMethodsOption = "SKIP_BASE_PROTOCOL_METHODS"

	// MCPBaseProtocolMethodsOptionMatch matches the base protocol as well.
	MCPBaseProtocolMethodsOptionMatch MCPBaseProtocolMethodsOption = "MATCH_BASE_PROTOCOL_METHODS"
)

// MCPMethod is one MCP method or category of methods.
//
// +kubebuilder:validation:XValidation:rule="has(self.params) && self.params.size() > 0 ? self.name in ['prompts/get', 'tools/call', 'resources/subscribe', 'resources/unsubscribe', 'resources/read'] : true",message="Params can only be specified for get, call, subscribe, unsubscribe, or read methods"
type MCPMethod struct {
	// name of the method or category.
	//
	// +required
	Name MCPMethodName `json:"name"`

	// params are values of the message's params.name, one of which it has to
	// carry: tool names for tools/call, prompt names for prompts/get. Empty or
	// left out, any.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	Params []MCPMethodParam `json:"params,omitempty"`
}

// MCPMethodName is a method of the Model Context Protocol, or a category that
// stands for all methods below it.
//
// +kubebuilder:validation:Enum=tools;prompts;resources;prompts/list;tools/list;resources/list;resources/templates/list;prompts/get;tools/call;resources/subscribe;resources/unsubscribe;resources/read
type MCPMethodName string

// The categories, each of which stands for every method below it.
const (
	MCPMethodNameTools     MCPMethodName = "tools"
	MCPMethodNamePrompts   MCPMethodName = "prompts"
	MCPMethodNameResources MCPMethodName = "resources"
)

// The methods that list, which take no params.
const (
	MCPMethodNamePromptsList            MCPMethodName = "prompts/list"
	MCPMethodNameToolsList              MCPMethodName = "tools/list"
	MCPMethodNameResourcesList          MCPMethodName = "resources/list"
	MCPMethodNameResourcesTemplatesList MCPMethodName = "resources/templates/list"
)

// The methods that act on one thing and take params.
const (
	MCPMethodNamePromptsGet           MCPMethodName = "prompts/get"
	MCPMethodNameToolsCall            MCPMethodName = "tools/call"
	MCPMethodNameResourcesSubscribe   MCPMethodName = "resources/subscribe"
	MCPMethodNameResourcesUnsubscribe MCPMethodName = "resources/unsubscribe"
	MCPMethodNameResourcesRead        MCPMethodName = "resources/read"
)

// MCPMethodParam is a value of params.name, compared whole. The limit of 20
// characters is upstream's; longer names can be written as a CEL rule.
//
// +kubebuilder:validation:MaxLength=20
type MCPMethodParam string
