"""Providers' refusals of a request that does not fit the context window, as somebody met each of them."""

from __future__ import annotations

from typing import NamedTuple


class Seen(NamedTuple):
    """A refusal as `source` shows it (owner/repository#issue, or the document), and what it says."""

    source: str
    limit: int | None
    prompt: int | None
    reply: int | None
    error: str


ANTHROPIC = [
    Seen(
        "earendil-works/pi#102", 200_000, 219_898, None,
        'Error: 400 {"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long:'
        ' 219898 tokens > 200000 maximum"},"request_id":"req_011CVjxiYzEFcAQC4Fk87zw2"}',
    ),
    Seen(
        "code-yeongyu/oh-my-openagent#90", 200_000, 203_073, None,
        "Prompt is too long 203073 tokens > 200000 maximum",
    ),
    Seen(
        "anthropics/claude-code#408, wrapped by a terminal", 204_648, 189_136, 20_000,
        'Error: API Error: 400 {"type":"error","error":{"type":"invalid_request_error","message":"input length'
        " and `max_tokens` exceed context limit: \n     189136 + 20000 > 204648, decrease input length or"
        ' `max_tokens` and try again"}}',
    ),
    Seen(
        "anthropics/claude-code#6368", None, None, None,
        'API Error: 413 {"type":"error","error":{"type":"invalid_request_error","message":"Request \n    size'
        ' exceeds model context window"},"request_id":"req_011CSPWKXCRRY6RUpJykZ77v"}',
    ),
    Seen(
        "anthropics/anthropic-sdk-python#1028, Claude on Vertex", None, None, None,
        "Error code: 413 - {'type': 'error', 'error': {'type': 'invalid_request_error', 'message': 'Prompt is"
        " too long'}, 'request_id': 'req_vrtx_0'}",
    ),
    Seen(
        "BrokkAi/brokk-app#540, through LiteLLM", 200_000, 179_413, 32_768,
        '{"error":{"message":"litellm.BadRequestError: AnthropicException -'
        " b'{\\\"type\\\":\\\"error\\\",\\\"error\\\":{\\\"type\\\":\\\"invalid_request_error\\\",\\"
        '"message\\":\\"input'
        " length and `max_tokens` exceed context limit: 179413 + 32768 > 200000, decrease input length or"
        " `max_tokens` and try again\\\"}}'. Received Model"
        ' Group=anthropic/claude","type":null,"param":null,"code":"400"}}',
    ),
]  # fmt: skip

OPENAI = [
    Seen(
        "FoundationAgents/OpenManus#62, with functions", 8_192, 7_413, 800,
        "API error: Error code: 400 - {'error': {'message': \"This model's maximum context length is 8192"
        " tokens. However, you requested 8213 tokens (6683 in the messages, 730 in the functions, and 800 in"
        " the completion). Please reduce the length of the messages, functions, or completion.\", 'type':"
        " 'invalid_request_error', 'param': 'messages', 'code': 'context_length_exceeded'}}",
    ),
    Seen(
        "bytedance/deer-flow#310, with functions", 128_000, 202_868, None,
        "BadRequestError('Error code: 400 - {\\'error\\': {\\'message\\': \"This model\\'s maximum context"
        " length is 128000 tokens. However, your messages resulted in 202868 tokens (202767 in the messages,"
        " 101 in the functions). Please reduce the length of the messages or functions.\", \\'code\\':"
        " \\'context_length_exceeded\\'}}')",
    ),
    Seen(
        "cline/cline#5474", 272_000, 289_650, None,
        "400 Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 289650"
        " tokens. Please reduce the length of the messages.",
    ),
    Seen(
        "dyad-sh/dyad#1672, Responses API", None, None, None,
        '{"error":{"type":"error","sequence_number":2,"error":{"type":"invalid_'
        'request_error","code":"context_length_exceeded","message":"Your'
        " input exceeds the context window of this model. Please adjust your input and try"
        ' again.","param":"input"}}}',
    ),
    Seen(
        "openai/codex#4441, wrapped by a terminal", None, None, None,
        "stream disconnected before completion: Your input exceeds the context window of this\nmodel. Please"
        " adjust your input and try again.",
    ),
    Seen(
        "Azure/azure-sdk-for-python#40986", 128_000, 124_171, 1_000_000,
        "(context_length_exceeded) This model's maximum context length is 128000 tokens. However, you requested"
        " 1124171 tokens (124171 in the messages, 1000000 in the completion).\nCode: context_length_exceeded"
        '\n  File "azure/ai/inference"',
    ),
    Seen(
        "AzureSky in ikechan8370/chatgpt-plugin#219", 4_096, 3_104, 1_000,
        "OpenAl error 400: {\"error\":{ \"message\": \"This model's maximum context length is 4096 tokens."
        ' However, you requested 4104tokens (3104 in the messages, 1000 in the completion)."}}',
    ),
]  # fmt: skip

GOOGLE_AND_AMAZON = [
    Seen(
        "google-gemini/gemini-cli#6678, a list", 1_048_576, 1_200_293, None,
        '[{"error": {"code": 400, "message": "The input token count (1200293) exceeds the maximum number of'
        ' tokens allowed (1048576).", "errors": [{"message": "The input token count (1200293) exceeds the'
        ' maximum number of tokens allowed (1048576).", "domain": "global", "reason": "badRequest"}], "status":'
        ' "INVALID_ARGUMENT"}}]',
    ),
    Seen(
        "google-gemini/gemini-cli#4231, JSON inside JSON", 1_048_576, 3_475_108, None,
        '{"error":{"message":"{\\n  \\"error\\": {\\n    \\"code\\": 400,\\n    \\"message\\": \\"The input'
        ' token count (3475108) exceeds the maximum number of tokens allowed (1048576).\\",\\n    \\"status\\":'
        ' \\"INVALID_ARGUMENT\\"\\n  }\\n}\\n","code":400,"status":"Bad Request"}}',
    ),
    Seen(
        "google-gemini/gemini-cli#19727, Vertex", 1_048_576, 1_251_952, None,
        "Unable to submit request because the input token count is 1251952 but model only supports up to"
        " 1048576. Reduce the input token count and try again.",
    ),
    Seen(
        "warpdotdev/warp#15662", 1_048_576, None, None,
        "Vertex AI API error: Error 400, Message: The input token count exceeds the maximum number of tokens"
        " allowed 1048576., Status: INVALID_ARGUMENT, Details: []",
    ),
    Seen(
        "aws-samples/bedrock-chat#95", None, None, None,
        "EventStreamError: An error occurred (validationException) when calling the"
        " InvokeModelWithResponseStream operation: Input is too long for requested model.",
    ),
    Seen(
        "daisuke-awaji/moca#254, Claude", 200_000, 200_049, None,
        "Type: ValidationException\nDetails: The model returned the following errors: prompt is too long:"
        " 200049 tokens > 200000 maximum",
    ),
    Seen(
        "stdapi-ai/stdapi.ai, recorded from Nova Micro", None, None, None,
        "The model returned the following errors: Input Tokens Exceeded: Number of input tokens exceeds maximum"
        " length. Please update the input to try again.",
    ),
    Seen(
        "stdapi-ai/stdapi.ai, recorded from gpt-oss-20b", 131_072, 195_071, None,
        'The model returned the following errors: {"error":{"code":"validation_error","message":"ErrorEvent {'
        ' error: APIError { type: \\"BadRequestError\\", code: Some(400), message: \\"Input length (195071)'
        " exceeds model's maximum context length (131072).\\\" } }\"}}",
    ),
    Seen(
        "stdapi-ai/stdapi.ai, recorded from Gemma 3", 131_072, 242_008, 5,
        "The model returned the following errors: This model's maximum context length is 131072 tokens."
        " However, you requested 5 output tokens and your prompt contains at least 242008 input tokens, for a"
        " total of at least 242013 tokens.",
    ),
    Seen(
        "stdapi-ai/stdapi.ai, recorded from Llama 3", 8_192, None, None,
        "The model returned the following errors: This model's maximum context length is 8192 tokens. Please"
        " reduce the length of the prompt",
    ),
]  # fmt: skip

SERVERS = [
    Seen(
        "vllm-project/vllm#20409", 16_384, 112_946, 10_000,
        "ValueError: This model's maximum context length is 16384 tokens. However, you requested 122946 tokens"
        ' (112946 in the messages, 10000 in the completion).\n  File "vllm/entrypoints/openai/serving_chat.py"',
    ),
    Seen(
        "meta-llama/llama-verifications#58, told by its error object", 131_072, 152_536, 4_096,
        "Error code: 400 - {'object': 'error', 'message': \"This model's maximum context length is 131072"
        " tokens. However, you requested 156632 tokens (152536 in the messages, 4096 in the completion). Please"
        " reduce the length of the messages or completion.\", 'type': 'BadRequestError', 'param': None, 'code':"
        " 400}",
    ),
    Seen(
        "claude-code-best/claude-code#272", 64_001, 24_235, 64_000,
        "Error: 400 'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context"
        " length is      64001 tokens and your request has 24235 input tokens (64000 > 64001 - 24235). None",
    ),
    Seen(
        "UKGovernmentBEIS/inspect_ai#2634", 200, 203, None,
        "This model's maximum context length is 200 tokens. However, your request has 203 input tokens. Please"
        " reduce the length of the input messages. None",
    ),
    Seen(
        "AIDotNet/OpenCowork#82, counted only up to one too many", 262_144, None, 128_000,
        "This model's maximum context length is 262144 tokens. However, you requested 128000 output tokens and"
        " your prompt contains at least 134145 input tokens, for a total of at least 262145 tokens."
        " (parameter=input_tokens, value=134145)",
    ),
    Seen(
        "NVIDIA NIM, counted only up to one too many", 202_752, None, 32_000,
        "You passed 170753 input tokens and requested 32000 output tokens. However, the model's context length"
        " is only 202752 tokens, resulting in a maximum input length of 170752 tokens. Please reduce the length"
        " of the input prompt.",
    ),
    Seen(
        "langchain-ai/deepagents#468, status 500", 65_536, 66_501, None,
        "openai.InternalServerError: Error code: 500 - {'detail': '[address=0.0.0.0:43769, pid=1065] The"
        " decoder prompt (length 66501) is longer than the maximum model length of 65536. Make sure that"
        " `max_model_len` is no smaller'}",
    ),
    Seen(
        "EleutherAI/lm-evaluation-harness#2880", 2_048, 2_048, None,
        "ValueError: Prompt length of 2048 is longer than the maximum model length of 2048.",
    ),
    Seen(
        "vllm-project/vllm#10440", 1_000, 35_247, None,
        "Input prompt (35247 tokens) is too long and exceeds limit of 1000",
    ),
    Seen(
        "anomalyco/opencode#25231", 202_752, 170_941, 32_000,
        "Bad Request: Requested token count exceeds the model's maximum context length of 202752 tokens. You"
        " requested a total of 202941 tokens: 170941 tokens from the input messages and 32000 tokens for the"
        " completion.",
    ),
    Seen(
        "QwenLM/Qwen3#1321", 40_960, 61_709, None,
        "{\"object\":\"error\",\"message\":\"The input (61709 tokens) is longer than the model's context length"
        ' (40960 tokens).","type":"BadRequestError","param":null,"code":400}',
    ),
    Seen(
        "sgl-project/sglang#4048", 59_862, 160_062, None,
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens). Use a shorter input",
    ),
    Seen(
        "oobabooga/textgen#7257, by its fields", 8_192, 14_429, None,
        '{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the'
        " context size or enable context"
        ' shift","type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}',
    ),
    Seen(
        "llmmllab/llmmllab-api#69", 25_088, 25_837, None,
        "Error code: 400 - {'error': {'code': 400, 'message': 'request (25837 tokens) exceeds the available"
        " context size (25088 tokens), try increasing it', 'type': 'exceed_context_size_error',"
        " 'n_prompt_tokens': 25837, 'n_ctx': 25088}}",
    ),
    Seen(
        "QwenLM/qwen-code#371, before there were numbers", None, None, None,
        "the request exceeds the available context size. try increasing the context size or enable context"
        " shift",
    ),
    Seen(
        "fedora-copr/logdetective-website#193", 2_048, 2_285, None,
        "Exception: Requested tokens (2285) exceed context window of 2048",
    ),
    Seen(
        "lmstudio-ai/lmstudio-bug-tracker#546", 32_768, None, None,
        "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with"
        " context length of only 32768 tokens, which is not enough.",
    ),
    Seen(
        "Gitlawb/openclaude#353", 4_096, None, None,
        'API Error: 400 {"error":"The number of tokens to keep from the initial prompt is greater than the'
        " context length (n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context"
        ' \n     length, or provide a shorter input."}',
    ),
    Seen(
        "Ollama's cloud, many projects' tests", None, None, None,
        'Ollama API error 400: {"error":"prompt too long; exceeded max context length by 65590 tokens (ref:'
        ' 632ffad5)"}',
    ),
    Seen(
        "nano-step/nano-brain#208", None, None, None,
        'ollama: unexpected status 400: {"error":"the input length exceeds the context length"}',
    ),
    Seen(
        "ValueCell-ai/ClawX#658, oMLX", 32_768, 41_911, None,
        "400 Prompt too long: 41911 tokens exceeds max context window of 32768 tokens",
    ),
    Seen(
        "bytedance/UI-TARS-desktop#626", 65_537, 79_993, 1_024,
        '422 "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 65537. Given: 79993'
        ' `inputs` tokens and 1024 `max_new_tokens`"',
    ),
    Seen(
        "meta-llama/llama#1103", 4_096, 4_545, None,
        "Input validation error: `inputs` must have less than 4096 tokens. Given: 4545",
    ),
]  # fmt: skip

HOSTS_OF_MODELS = [
    Seen(
        "OpenHands/OpenHands#9937, in small letters", 131_072, 7_884, 131_072,
        "this endpoint's maximum context length is 131072 tokens. however, you requested about 138956 tokens"
        " (7884 of text input, 131072 in the output). please reduce the length of either one, or use the"
        ' \\"middle-out\\" transform',
    ),
    Seen(
        "Kilo CLI, with tools", 256_000, 414_983, 10_000,
        "This endpoint's maximum context length is 256000 tokens.\nHowever, you requested about 424983 tokens"
        " (358454 of text input, 56529 of tool input, 10000 in the output).",
    ),
    Seen(
        "egoist/chatwise-releases#917, Claude on Bedrock behind it", 204_658, 149_674, 64_000,
        'OpenRouter provider error: {"error":{"message":"Provider returned'
        ' error","code":400,"metadata":{"raw":"{\\"message\\":\\"input length and `max_tokens` exceed context'
        ' limit: 149674 + 64000 > 204658\\"}","provider_name":"Amazon Bedrock"}}}',
    ),
    Seen(
        "anomalyco/models.dev#1295, told by its code", 131_072, 131_749, 0,
        "{\"error\":{\"message\":\"This model's maximum context length is 131072 tokens. However, you requested"
        " 131749 tokens (131749 in the messages, 0 in the"
        ' completion).","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}',
    ),
    Seen(
        "thepersonalaicompany/amurex-backend#51", None, None, None,
        "groq.BadRequestError: Error code: 400 - {'error': {'message': 'Please reduce the length of the"
        " messages or completion.', 'type': 'invalid_request_error', 'param': 'messages', 'code':"
        " 'context_length_exceeded'}}",
    ),
    Seen(
        "cline/cline#3120", 131_072, 136_973, None,
        "400 \"This model's maximum prompt length is 131072 but the request contains 136973 tokens.\"",
    ),
    Seen(
        "Mistral Large, a Google forum's thread 165446", 32_768, 65_673, None,
        '{"object": "Error", "message": "Prompt contains 65673 tokens, too large for model with 32768 maximum'
        ' context length", "type": "invalid_request_error", "code": 3051}',
    ),
    Seen(
        "fw-ai/cookbook#134", 32_767, 40_177, None,
        "Fireworks_aiException -"
        ' {"error":{"object":"error","type":"invalid_request_error","code":"inv'
        'alid_request_error","message":"The'
        ' prompt is too long: 40177, model maximum context length: 32767"}}',
    ),
    Seen(
        "cline/cline#5140", 40_000, 42_328, None,
        "400 Please reduce the length of the messages or completion. Current length is 42328 while limit is"
        " 40000",
    ),
    Seen(
        "microsoft/vscode#289219", 128_000, 1_236_658, None,
        'Request Failed: 400 {"error":{"message":"prompt token count of 1236658 exceeds the limit of'
        ' 128000","code":"model_max_prompt_tokens_exceeded"}}',
    ),
    Seen(
        "Moonshot's documents: prompt and max_tokens together", 262_144, None, None,
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 265359)",
    ),
    Seen(
        "QwenLM/qwen-code#98", 204_800, None, None,
        "OpenAI API error: 400 <400> InternalError.Algo.InvalidParameter: Range of input length should be [1,"
        " 204800]",
    ),
    Seen(
        "langgenius/dify#32221", 202_752, 203_743, None,
        "Input length 203743 exceeds the maximum length 202752",
    ),
    Seen(
        "Cohere's documents", 4_081, 4_292, None,
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292. Try using a"
        " shorter prompt",
    ),
    Seen(
        "MiniMax-AI/MiniMax-M2#119: 2013 is the number of the error", None, None, None,
        "invalid params, context window exceeds limit (2013)",
    ),
    Seen(
        "zeroclaw-labs/zeroclaw#4124", None, None, None,
        'Z.AI API error (400 Bad Request): {"error":{"code":"1261","message":"Prompt exceeds max length"}}',
    ),
    Seen(
        "ddalcu/mlx-serve#66", None, None, None,
        "API Error: 400 Prompt exceeds maximum context length",
    ),
]  # fmt: skip

SEEN = ANTHROPIC + OPENAI + GOOGLE_AND_AMAZON + SERVERS + HOSTS_OF_MODELS
