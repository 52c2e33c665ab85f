/* SPDX-License-Identifier: Apache-2.0 */
/* commands.c - the table of commands. */
#include "cli/command.h"
#include "cli/run.h"

#define FLAG_DOCUMENT                                                        \
    {"document-bytes", "N",                                                  \
     "the most bytes of a document or line (67108864)", ONCE}
#define FLAG_JSON {"json", NULL, "prints the result as JSON", ONCE}

#define FLAG_SET                                                             \
    {"set", "K=V", "sets one option; `lockstep help options` lists them",    \
     REPEATS}
#define FLAG_WEIGHTS                                                         \
    {"weights", "NAME", "trained weights (default), or ema: their moving "     \
     "average", ONCE}
#define FLAG_DEVICE                                                          \
    {"device", "NAME", "auto, cpu, cuda, or far, which tests "                 \
     "(docs/devices.md)", ONCE}
#define FLAG_ISA {"isa", "NAME", "auto, plain, avx2, avx512 or neon", ONCE}
#define FLAG_THREADS                                                         \
    {"threads", "N", "number of threads; 0: all cores that the process may "   \
     "use (0)", ONCE}

#define FLAG_TRACE                                                           \
    {"trace", "FILE.json", "writes a trace of three steps for Perfetto, one "  \
     "file per rank", OUTPUT}

#define FLAG_SUPERVISED                                                      \
    {"supervised", NULL, "ranks are processes; one that dies or hangs is "     \
     "replaced (docs/supervision.md)", ONCE}

#define FLAG_SPARES                                                          \
    {"spares", "S", "with --supervised: S more processes wait to replace "     \
     "ranks; without any left the run goes on with fewer ranks", ONCE}

#define FLAG_COPIES                                                          \
    {"copies", "K|auto", "with --supervised: the state is copied into memory " \
     "after every K steps; 0: never; auto: as often as costs 1% (auto)", ONCE}

#define FLAG_RANKS                                                           \
    {"ranks", "N", "number of ranks, run as threads; docs/mesh.md (1)", ONCE}

#define FLAG_SCALE                                                           \
    {"scale", "1/K", "divides the sizes of model and batch by K "             \
     "(docs/planner.md)", ONCE}
#define FLAG_MACHINE                                                         \
    {"machine", "FILE|PRESET", "a profile that calibrate wrote, or a name "   \
     "that `lockstep machines` prints; corrections may follow: "              \
     "h100,gemm=0.72", ONCE}
#define FLAG_NODES                                                           \
    {"nodes", "M", "number of nodes (as many as the ranks need)", ONCE}
#define FLAG_FOREIGN                                                         \
    {"foreign", NULL, "takes a profile of another machine", ONCE}
#define FLAG_AS                                                              \
    {"as", "PROGRAM", "whose step is predicted: lockstep, megatron, "         \
     "megatron-core, megatron-deepspeed, torchtitan, pytorch, nanotron, "      \
     "nemo, llm-foundry, torchtitan-bf16, pytorch-bf16, automodel, jax, "      \
     "internlm, torchtitan-2024 or kempnerforge (lockstep)", ONCE}
#define FLAG_MAX_MEMORY                                                      \
    {"max-memory", "B", "memory a rank may take, such as 80GiB (the "          \
     "machine's)", ONCE}
#define FLAG_TOKENS {"tokens", "T", "tokens of the run, for days", ONCE}
#define FLAG_WATTS {"watts", "W", "power of a device, for energy", ONCE}
#define FLAG_PRICE {"price", "X", "price of a device-hour, for cost", ONCE}

const struct command commands[] = {
    {"train", "CONFIG", 1, 1, "trains a model as a configuration says",
     "Plans all memory, allocates it, trains. Writes metrics.jsonl, "
     "checkpoints and report.html\ninto the run's directory. SIGTERM, "
     "SIGUSR1, SIGHUP and Ctrl-C save and stop (exit code 75).",
     "lockstep train examples/01_first_run/config.yaml --run runs/first", false,
     command_train,
     {FLAG_SET, FLAG_SCALE,
      {"run", "DIR", "directory of the run (run.dir)", ONCE},
      FLAG_RANKS, FLAG_SUPERVISED, FLAG_SPARES, FLAG_COPIES, FLAG_THREADS,
      FLAG_ISA, FLAG_TRACE,
      {"dry-run", NULL, "prints the plan and stops; writes nothing", ONCE},
      FLAG_JSON}},
    {"resume", "RUN", 1, 1, "continues a stopped run, with the same bits",
     "Continues from the newest complete checkpoint. --set may change the rest "
     "of the run\n(its length, the learning rate, what is logged and kept), "
     "but not what was already\ntrained.",
     "lockstep resume runs/first --set train.steps=600", false, command_resume,
     {FLAG_SET, FLAG_RANKS, FLAG_SUPERVISED, FLAG_SPARES, FLAG_COPIES,
      FLAG_THREADS, FLAG_ISA, FLAG_TRACE,
      {"from-scratch", NULL, "begins again at step 0 where no checkpoint is "
                             "left", ONCE},
      FLAG_JSON}},
    {"note", "RUN [TEXT]", 1, 2, "writes a note into the log book of a run",
     "Appends the text, with the time and the newest step, to RUN/notes.jsonl; "
     "without a text\nit prints all notes. A run may be training meanwhile. "
     "The report shows them.",
     "lockstep note runs/first \"the fan of node 4 was replaced\"\n"
     "lockstep note runs/first", false, command_note, {{0}}},
    {"fetch", "URL RUN", 2, 2, "brings a run back from object storage",
     "Makes the directory RUN with the newest checkpoint below s3://BUCKET/"
     "PREFIX (option\ncheckpoint.mirror), verifies every block of it, and "
     "brings configuration, metrics and\nrecords. Endpoint and credentials: "
     "AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and\nAWS_SECRET_ACCESS_KEY. "
     "docs/checkpoints.md",
     "lockstep help options >/dev/null # AWS_... are set; then:\n"
     "# lockstep fetch s3://models/first runs/fetched", false, command_fetch,
     {{"best", NULL, "brings the checkpoint with the lowest validation loss, "
                     "too (checkpoint.keep_best)", ONCE}}},
    {"gather", "RUN", 1, 1,
     "makes a checkpoint of what machines keep of a run",
     "A run with checkpoint.local keeps on each machine the shards of its own "
     "ranks. This makes\nRUN/ckpt with the newest step that is whole, "
     "verified, and brings configuration, metrics\nand records: then export, "
     "compare and the others read the run. With --listen, agents\nof the "
     "machines join (lockstep agent); without, all shards are below a "
     "directory of\nthis machine. docs/checkpoints.md",
     "lockstep train examples/01_first_run/config.yaml --run runs/gathered \\\n"
     "    --set train.steps=20 --set checkpoint.local=runs/shards\n"
     "lockstep gather runs/gathered", false, command_gather,
     {{"local", "DIR", "where the shards are (checkpoint.local of RUN)", ONCE},
      {"listen", "ADDRESS", "HOST:PORT where agents join", ONCE},
      {"token", "FILE", "the key that agents have, too", ONCE},
      {"nodes", "N", "agents that are waited for (1)", ONCE},
      {"wait", "SECONDS", "how long they are waited for (60)", ONCE}}},
    {"supervise", "CONFIG", 1, 1, "keeps a run alive on several machines",
     "Listens for agents (lockstep agent), one on each machine, and gives them "
     "the ranks of the\nrun. Ranks and machines that fail are replaced by "
     "spare places, or the run goes on with\nfewer ranks. If it is killed, "
     "start it again with the same command: ranks keep stepping\nmeanwhile. "
     "Agents see the same files under the same names. docs/supervision.md",
     "lockstep supervise examples/01_first_run/config.yaml --run runs/many \\\n"
     "    --ranks 2 --listen 127.0.0.1:7077 --token token &\n"
     "sleep 1 # then, on each machine: lockstep agent --join ...",
     false, command_supervise,
     {{"listen", "ADDRESS", "HOST:PORT where agents join (127.0.0.1:0)", ONCE},
      {"token", "FILE", "key that agents must have, too; made if it is not "
       "there", ONCE},
      {"ranks", "N", "number of ranks (as the mesh says)", ONCE},
      {"run", "DIR", "directory of the run (run.dir)", ONCE}, FLAG_SET,
      FLAG_SCALE,
      {"copies", "K|auto", "the state is copied into memory after every K "
       "steps; 0: never; auto: as often as costs 1% (auto)", ONCE},
      {"replicas", "M", "machines that have each copy, that of the rank "
       "included, 1 to 3 (2)", ONCE},
      FLAG_THREADS, FLAG_ISA}},
    {"agent", "", 0, 0, "lends this machine to a supervisor",
     "Starts, watches and ends ranks for lockstep supervise, and keeps their "
     "state in memory\nthat outlives them. Ends when the run does.",
     "lockstep agent --join 127.0.0.1:7077 --token token --slots 2\nwait",
     false, command_agent,
     {{"join", "ADDRESS", "HOST:PORT of the supervisor", ONCE},
      {"token", "FILE", "the key of the run, mode 0600", ONCE},
      {"slots", "K", "ranks that run here at a time (1)", ONCE},
      {"name", "NAME", "name of this machine in the run (its name in Slurm, or "
       "its host name)", ONCE}}},
    {"status", "RUN", 1, 1, "shows how a supervised run is",
     "Who lives, where each rank is, the newest step, incidents so far. Reads "
     "only; any\nnumber may look. docs/supervision.md",
     "lockstep train examples/01_first_run/config.yaml --run runs/kept "
     "--ranks 2 --supervised\nlockstep status runs/kept", false,
     command_status, {FLAG_JSON}},
    {"incidents", "RUN", 1, 1, "lists what happened to a supervised run",
     "Every death and hang of a rank with its cause, and how the run went on. "
     "docs/supervision.md",
     "lockstep incidents runs/kept --explain\n"
     "lockstep incidents runs/kept --json", false, command_incidents,
     {{"explain", NULL, "adds where every rank was, and which one the others "
       "waited for", ONCE},
      {"calls", "N", "prints the last calls of all ranks before incident N "
       "instead", ONCE}, FLAG_JSON}},
    {"launch", "COMMAND...", 1, OPERANDS_ANY,
     "runs a command on ranks that are processes",
     "Starts N processes of a command on this machine, connected by lockstep "
     "itself: as\nmpirun does, without MPI. Ranks are threads of one process "
     "without it. The bits are\nthe same. docs/communication.md",
     "lockstep launch --ranks 2 -- lockstep train "
     "examples/01_first_run/config.yaml --run runs/processes", false,
     command_launch,
     {{"ranks", "N", "number of processes", ONCE}}},
    {"verify", "CONFIG", 1, 1, "proves that layouts train the same bits",
     "Trains a few steps with one rank, then with each layout, and compares "
     "loss,\ngradients and weights bit by bit. The exit code is 0 only if "
     "every row meets its\nclaim. FILE has one layout per line: ranks=4 "
     "mesh.tensor=2 ... Each row replaces\nthe mesh of CONFIG. Without "
     "FILE, that mesh is a row, too, if it has several\nranks.",
     "lockstep verify examples/01_first_run/config.yaml --ranks 4", false,
     command_verify,
     {{"ranks", "N", "largest number of ranks in the usual layouts (2)", ONCE},
      {"layouts", "FILE", "tests these layouts instead of the usual ones",
       ONCE},
      {"steps", "N", "number of steps to train and compare (5)", ONCE},
      {"dtype", "TYPE", "float32, float64, bfloat16 or float16", ONCE},
      {"draw", "FILE.svg", "draws all loss curves into one picture", OUTPUT},
      FLAG_SET, FLAG_JSON}},
    {"generate", "MODEL", 1, 1, "continues a text, token by token",
     "--temperature 0 is greedy. Stops at the model's end-of-text token. "
     "The same seed\ngives the same text on every machine and with any number "
     "of threads. Of several\nprompts, each has the seed after that of the one "
     "before, and --json prints a line for\neach.",
     "lockstep generate runs/first --prompt \"In the beginning\" --tokens 80",
     false, command_generate,
     {FLAG_WEIGHTS,
      {"prompt", "TEXT", "text to continue; \"\" starts from nothing", REPEATS},
      {"prompts", "FILE", "a prompt in each line; of .jsonl its \"prompt\"",
       ONCE},
      {"batch", "N", "prompts that are continued at once; the same texts (up "
       "to 16 whose caches are small beside the weights)", ONCE},
      {"tokens", "N", "most tokens to write (100, or as many as fit)", ONCE},
      {"temperature", "X", "sampling temperature; 0: greedy (0.8)", ONCE},
      {"top-k", "K", "samples from the K likeliest tokens; 0: from all (0)",
       ONCE},
      {"top-p", "P", "samples from the likeliest tokens whose probabilities "
       "add up to P (1)", ONCE},
      {"min-p", "P", "of those, tokens at least P times as likely as the "
       "likeliest (0)", ONCE},
      {"repetition-penalty", "X", "makes tokens of the text less likely (1)",
       ONCE},
      {"stop", "TEXT", "the text ends before this; may be repeated", REPEATS},
      {"seed", "S", "seed of the random numbers (1)", ONCE},
      {"dtype", "TYPE", "float32 (default), bfloat16, float16 or float64",
       ONCE},
      {"cache", "KIND", "keys (default): keys and values, the bits of a whole "
       "pass; latent: the short vectors of latent attention, less memory, "
       "rounded otherwise", ONCE},
      {"speculative", NULL, "modules that predict later tokens (mtp.depth) "
       "guess, the model checks their tokens in one call: the same text",
       ONCE},
      {"stats", NULL, "prints tokens per second and the limit set by memory "
       "bandwidth",
       ONCE},
      FLAG_DEVICE, FLAG_THREADS, FLAG_JSON}},
    {"score", "MODEL", 1, 1, "computes loss, logits and gradients for given "
     "token ids",
     "FILE.json is an array of arrays of token ids, all of the same length. "
     "The loss is the\nmean over all next-token targets; gradients are of that "
     "mean, under Hugging Face\nnames (a tied tensor appears once); logits "
     "have the shape [sequences, length,\nvocabulary].",
     "echo '[[7, 1, 2], [8, 3, 5]]' > ids.json\n"
     "lockstep score runs/first --tokens ids.json --json", false,
     command_score,
     {FLAG_WEIGHTS,
      {"tokens", "FILE.json", "token ids to score", ONCE},
      {"dtype", "TYPE", "float32 (default), float64, bfloat16 or float16",
       ONCE},
      {"logits", "OUT.safetensors", "writes the logits", OUTPUT},
      {"gradients", "OUT.safetensors", "writes every gradient", OUTPUT},
      FLAG_DEVICE, FLAG_THREADS, FLAG_JSON}},
    {"eval", "MODEL", 1, 1, "scores a model on tasks and texts, by likelihood",
     "Computes accuracy, perplexity and bits per byte as lm-evaluation-harness "
     "defines them,\nfor JSON-lines files (HellaSwag, ARC, LAMBADA, "
     "multiple choice) or for texts. The\nresult does not depend on the batch "
     "size or on the number of threads or ranks.\nSee docs/evaluation.md.",
     "lockstep eval runs/first --task demo/corpus/valid.jsonl --kind "
     "perplexity", false, command_eval,
     {FLAG_WEIGHTS,
      {"task", "FILE,...", "task files, also .gz and .zst", REPEATS},
      {"kind", "KIND,...", "hellaswag, arc, lambada, multiple_choice or "
       "perplexity; one for all files, or one for each (recognized by the "
       "fields of the file)",
       ONCE},
      {"shots", "N", "few-shot: answered examples before each item (0)", ONCE},
      {"examples", "FILE", "file with the examples (the task's first items)",
       ONCE},
      {"field", "KEY", "key of the text in .jsonl and .parquet (text)", ONCE},
      FLAG_DOCUMENT,
      {"limit", "N", "most items of each task; 0: all (0)", ONCE},
      {"context", "N", "most tokens of a request (the model's context)", ONCE},
      {"no-special", NULL, "does not add the tokenizer's special tokens",
       ONCE},
      {"batch", "N", "rows processed at once (as many as make a few thousand "
       "tokens)", ONCE},
      {"dtype", "TYPE", "float32 (default), float64, bfloat16 or float16",
       ONCE},
      {"out", "FILE.jsonl", "writes each item with its likelihoods", OUTPUT},
      {"ranks", "N", "number of ranks that share the items: threads, or the "
       "processes of mpirun (1)", ONCE},
      FLAG_DEVICE, FLAG_THREADS, FLAG_JSON}},
    {"compare", "MODEL_A MODEL_B", 2, 2,
     "finds the first difference of two models or two runs",
     "The exit code is 0 if every bit is equal, 1 if they differ. Two runs are "
     "compared by\ntheir metrics (except for times) and by the newest "
     "checkpoint that both have; options\nthat differ are listed, but do not "
     "count. Two checkpoints are compared with their\noptimizer states, other "
     "models by their weights. The layouts that wrote them do not\nmatter.",
     "lockstep compare runs/first demo/run --tensors", false,
     command_compare,
     {{"tensors", NULL, "prints a line for each tensor that differs", ONCE},
      {"draw", "FILE.svg|FILE.html", "draws the loss curves of two runs "
       "and their difference", OUTPUT},
      FLAG_JSON}},
    {"metrics", "RUN", 1, 1, "prints the metrics of a run as a table, CSV or "
     "JSON",
     "The table shows a few lines; --csv and --json contain every line and "
     "every metric of\nmetrics.jsonl. A cell is empty where a line lacks the "
     "metric. The run may still be\ntraining.",
     "lockstep metrics runs/first --csv", false, command_metrics,
     {{"csv", NULL, "prints all lines as comma-separated values", ONCE},
      {"lines", "N", "number of lines in the table, evenly spaced (20)", ONCE},
      FLAG_JSON}},
    {"tokenize", "TOKENIZER.json FILE...", 2, OPERANDS_ANY,
     "turns text into token ids or token files",
     "With --out, the documents of the files (docs/data.md defines a document) "
     "are written as\none token file, or as shards in a directory. If the "
     "command is killed, the same call\ncontinues after the last complete "
     "shard. Without --out, the file is one text. It is\nencoded as "
     "encode(text) of the `tokenizers` library does "
     "(--no-special:\nadd_special_tokens=False), and the first tokens and a "
     "summary are printed. --offsets\nadds the byte range and the character "
     "range of each token in the text; the end is\nexclusive, as in the "
     "tokenizer's own library.",
     "lockstep tokenize demo/tokenizer.json README.md --ids\n"
     "lockstep tokenize demo/tokenizer.json README.md --offsets\n"
     "lockstep tokenize demo/tokenizer.json demo/corpus --out shards",
     false, command_tokenize,
     {{"ids", NULL, "prints all token ids as one JSON array", ONCE},
      {"offsets", NULL, "prints the place of each token in the text; with "
       "--ids, all tokens as JSON lines", ONCE},
      {"out", "FILE.tokens|DIR", "writes one token file, or shards", OUTPUT},
      {"shard-tokens", "N", "tokens per shard (100000000)", ONCE},
      {"field", "KEY", "key of the text in .jsonl and .parquet (text)", ONCE},
      FLAG_DOCUMENT,
      {"chat", "NAME", "template of conversations in .jsonl (data.chat)",
       ONCE},
      {"fim-rate", "X", "share of documents rearranged for fill-in-the-middle "
       "(0)",
       ONCE},
      {"no-special", NULL, "does not add special tokens", ONCE},
      FLAG_THREADS, FLAG_JSON}},
    {"data audit", "RUN", 1, 1,
     "proves that a run lost and repeated no sample",
     "Reads RUN/consumed.jsonl, which has a line for each step: the samples "
     "whose losses\nentered it, added up over all ranks. Checks that they are "
     "each sample of the run's\norder once, but for those that policies and "
     "data.skip left out, and that the newest\ncheckpoint goes on where the "
     "lines end. Exit code 77 if not.",
     "lockstep data audit runs/first", false, command_data_audit,
     {FLAG_JSON}},
    {"data show", "CONFIG", 1, 1, "shows the samples of a training step",
     "Prints the documents in the samples of a step, with their texts, and how "
     "much each\nsource has contributed so far. CONFIG may also be a run: "
     "then they are the samples that\nits steps consumed, without those that "
     "it left out. Nothing is trained: the order of the\nsamples depends only "
     "on the configuration and the step.",
     "lockstep data show runs/first --step 100", false, command_data_show,
     {{"step", "N", "the step, counted from 1 (1)", ONCE},
      {"samples", "N", "number of samples to show (4)", ONCE},
      {"from", "I", "first sample to show, counted from 0 (0)", ONCE},
      {"ids", NULL, "prints token ids instead of text", ONCE},
      FLAG_SET, FLAG_JSON}},
    {"data verify", "PATH...", 1, OPERANDS_ANY,
     "checks data files completely",
     "Checks checksums, token ids, tables, UTF-8 and JSON of every file, and "
     "whether a token\nfile changed since it was sealed. A token file without "
     "faults is sealed; a run opens\nit without reading it again. A PATH may "
     "also be a configuration or a run. Its data is\nthen checked, including "
     "data.cache, and ids must be below the model's vocabulary size.",
     "lockstep data verify demo/corpus/train.jsonl\n"
     "lockstep data verify shards --tokenizer demo/tokenizer.json",
     false, command_data_verify,
     {{"tokenizer", "FILE", "refuses ids that this tokenizer does not have, "
       "and files made with another tokenizer", ONCE},
      {"vocab", "N", "refuses ids that are not below N", ONCE},
      {"field", "KEY", "key of the text in .jsonl and .parquet (text)", ONCE},
      FLAG_DOCUMENT,
      {"chat", "NAME", "template of conversations in .jsonl (data.chat)",
       ONCE},
      {"accept", NULL, "accepts changed files and seals them again", ONCE},
      FLAG_SET, FLAG_JSON}},
    {"tokenizer train", "FILE...", 1, OPERANDS_ANY,
     "trains a byte-level BPE tokenizer",
     "Files are .txt, .jsonl or directories of them. The result is a Hugging "
     "Face\ntokenizer.json. It does not depend on the number of threads or the "
     "order of files.",
     "lockstep tokenizer train demo/corpus/train.jsonl --vocab 2048 --out "
     "tokenizer.json",
     false, command_tokenizer_train,
     {{"vocab", "N", "vocabulary size, at least 257", ONCE},
      {"out", "TOKENIZER.json", "file to write", OUTPUT},
      {"field", "KEY", "key of the text in .jsonl (text)", ONCE},
      {"min-count", "N", "does not merge pairs that occur less often (1)",
       ONCE},
      {"memory", "MiB", "memory for word counts (2048); more words are kept "
       "in a file beside the result, and the rarest may be dropped", ONCE},
      {"end-of-text", "TOKEN", "the end-of-text token (<|endoftext|>)", ONCE},
      FLAG_THREADS, FLAG_JSON}},
    {"import", "HF_DIR RUN", 2, 2, "turns a Hugging Face directory into a run",
     "Writes the weights as a checkpoint of step 0, which generate, score, "
     "export and\ninit.from accept. Every tensor of the directory must be "
     "used exactly once; an error\nnames those that are not.\n\n"
     "With --set moe.experts=8 a dense model becomes a mixture: every expert "
     "begins as\na copy of the block's feed-forward part, the routers at "
     "random. llama and mistral\nbecome mixtral, qwen3 becomes qwen3_moe; the "
     "first loss is the dense model's.",
     "lockstep import SmolLM-135M runs/smol", false, command_import,
     {{"adapter", "DIR", "also imports the LoRA adapters of a PEFT directory",
      ONCE},
      {"set", "K=V", "moe.experts, moe.top_k, seed: makes a mixture", REPEATS},
      FLAG_JSON}},
    {"export", "MODEL HF_DIR", 2, 2, "writes a model as a Hugging Face "
     "directory",
     "Writes config.json, sharded safetensors and the tokenizer, then reads "
     "them back and\nchecks that a forward pass gives the same logits, bit by "
     "bit.",
     "lockstep export runs/first exported", false, command_export,
     {FLAG_WEIGHTS,
      {"dtype", "TYPE", "float32, bfloat16 or float16: weights are rounded to "
       "nearest even (default: the type in which the model is kept)", ONCE},
      {"adapter", NULL, "writes only the LoRA adapters, in PEFT's format; "
       "without it they are merged into the weights", ONCE},
      FLAG_JSON}},
    {"plan", "CONFIG", 1, 1, "shows what a configuration will do, before it "
     "runs",
     "Prints the same plan that the trainer executes. CONFIG may also be a "
     "run. With --time,\npredicts a step on a machine: seconds, MFU, memory, "
     "cost (docs/planner.md). Exit code\n79: it does not fit the machine's "
     "memory.",
     "lockstep plan examples/01_first_run/config.yaml --explain memory", false,
     command_plan,
     {{"explain", "VIEW",
       "summary, parameters, program, memory, schedule, numerics, precision, "
       "experts, "
       "zero, ramp, mesh, step or time",
       ONCE},
      {"time", NULL, "predicts a step on --machine", ONCE},
      FLAG_MACHINE, FLAG_NODES, FLAG_FOREIGN, FLAG_AS, FLAG_MAX_MEMORY,
      {"offload", "WHAT,...", "planned only: states, weights or activations in "
       "host memory, with `disk` on disk", ONCE},
      {"copies", "K|auto", "with --time: copies of the state on other nodes "
       "after every K steps, in idle time of the network", ONCE},
      {"replicas", "N", "with --copies: nodes with a copy of each rank (2)",
       ONCE},
      FLAG_TOKENS, FLAG_WATTS, FLAG_PRICE, FLAG_SET,
      {"ranks", "N", "number of ranks (1)", ONCE},
      {"rank", "R", "the rank to show (0)", ONCE},
      {"step", "N", "with a batch ramp: the step to show, counted from 1 (the "
       "last)",
       ONCE},
      {"after", "PASS", "--explain step: the list after this pass: compute, "
       "transfers, samples, beside, gathers, reductions, tail or needs "
       "(needs)", ONCE},
      {"draw", "FILE.svg", "draws --explain mesh, memory, step or time",
       OUTPUT},
      FLAG_SCALE, FLAG_THREADS, FLAG_JSON}},
    {"search", "CONFIG", 1, 1, "finds the fastest layout of a model on a "
     "machine",
     "Enumerates every legal mesh, schedule, micro-batch, ZeRO stage and "
     "recomputation, discards\nwhat does not fit, times the best, and says why "
     "the others lose. Prints lines to paste\ninto the configuration. Exit "
     "code 79: nothing fits (docs/planner.md).",
     "lockstep search examples/01_first_run/config.yaml --machine cpu --ranks "
     "2", false,
     command_search,
     {FLAG_MACHINE, FLAG_NODES, FLAG_FOREIGN, FLAG_AS, FLAG_MAX_MEMORY,
      {"ranks", "N", "number of ranks (all devices of the nodes)", ONCE},
      {"top", "N", "layouts to print (10)", ONCE},
      {"objective", "NAME", "time, cost or memory (time)", ONCE},
      {"draw", "FILE.svg", "draws time, free memory and network bytes", OUTPUT},
      FLAG_SCALE, FLAG_SET, FLAG_JSON}},
    {"simulate", "CONFIG", 1, 1, "a step, a day and a month with slow ranks "
     "and failures",
     "FILE says which ranks or links are slower, and how often nodes fail "
     "(docs/planner.md).",
     "echo '{\"slow\": [{\"rank\": 1, \"factor\": 1.5}]}' > slow.json\n"
     "lockstep simulate examples/01_first_run/config.yaml --ranks 2 --machine "
     "cpu --perturb slow.json", false,
     command_simulate,
     {FLAG_MACHINE, FLAG_NODES, FLAG_FOREIGN, FLAG_AS,
      {"ranks", "N", "number of ranks (1; with --nodes: all their devices)",
       ONCE},
      {"perturb", "FILE", "slow ranks, slow links, failures", ONCE},
      {"replay", "TRACE", "a trace of `train --trace`: the clock with its "
       "times", ONCE},
      {"unfold", NULL, "simulates equal pipelines one by one, too", ONCE},
      FLAG_TOKENS, FLAG_SET, FLAG_JSON}},
    {"ettr", "", 0, 0, "the share of time that large runs train, with "
     "failures",
     "Effective training time over all time for 1,024 to 131,072 ranks: for "
     "usual ways to\nrecover, or for one that flags describe, and beside "
     "published figures\n(docs/reliability.md).",
     "lockstep ettr\nlockstep ettr --restart 60 --interval 600 --stall 5",
     false, command_ettr,
     {{"per-node-day", "R", "failures of a node in a day (0.0065)", ONCE},
      {"per-node", "N", "ranks of a node (8)", ONCE},
      {"restart", "S", "seconds from a failure to the next step", ONCE},
      {"interval", "S", "seconds between checkpoints; 0: the best (0)", ONCE},
      {"stall", "S", "seconds that a checkpoint stops training (5)", ONCE},
      {"draw", "FILE.svg", "draws both tables", OUTPUT}, FLAG_JSON}},
    {"budget", "", 0, 0, "how large a model a budget trains",
     "Chinchilla's choice for a number of FLOPs, tokens or days, and smaller "
     "models that are\ntrained longer.",
     "lockstep budget --days 30 --machine h100 --nodes 16", false,
     command_budget,
     {{"tokens", "T", "tokens to train on", ONCE},
      {"flops", "F", "FLOPs to spend", ONCE},
      {"days", "D", "days on the machine", ONCE},
      FLAG_MACHINE, FLAG_NODES, FLAG_FOREIGN,
      {"ranks", "N", "number of devices (1)", ONCE},
      {"mfu", "X", "share of the 16-bit peak that is reached (0.4)", ONCE},
      {"unique", "T", "unique tokens of the data, for repetition", ONCE},
      {"batch", "T", "tokens of a batch, for the critical batch", ONCE},
      {"context", "N", "tokens of a sequence, for attention's share", ONCE},
      FLAG_WATTS, FLAG_PRICE, FLAG_JSON}},
    {"calibrate", "[CONFIG...]", 0, OPERANDS_ANY, "measures this machine for "
     "the planner",
     "Times products (those that the configurations make, and usual ones), "
     "attention, memory,\nmessages, contention and the disk, with all cores "
     "active, and writes a profile for\n--machine. Says when the machine was "
     "not equally fast all the time. --against measures\nnothing but how fast "
     "products and memory are now, beside a profile: whether this minute is\n"
     "quiet.",
     "lockstep calibrate examples/01_first_run/config.yaml --seconds 2 --out "
     "machine.json", false, command_calibrate,
     {{"seconds", "S", "time to measure, about (10)", ONCE},
      {"out", "FILE", "file of the profile (standard output)", OUTPUT},
      {"against", "PROFILE", "says whether this minute is as quiet as that of "
       "a profile", ONCE},
      FLAG_SET}},
    {"machines", "", 0, 0, "lists the machines that the planner knows",
     "Every constant says whether it is from a data sheet, fitted on published "
     "measurements,\nmeasured or assumed. `lockstep calibrate` measures this "
     "machine.",
     "lockstep machines", false, command_machines,
     {{"explain", "MACHINE", "every constant of a preset or profile", ONCE},
      FLAG_JSON}},
    {"mup", "CONFIG", 1, 1, "checks that a learning rate transfers between "
     "widths",
     "The coordinate check of muP. Trains the model at several widths, with "
     "and without muP,\non one rank at a constant learning rate, and prints "
     "how much each activation changed. If\nthe change grows with the width, "
     "that width needs another learning rate (docs/mup.md).\nThe number of "
     "heads and the feed-forward width grow with the width.",
     "lockstep mup examples/01_first_run/config.yaml --widths 96,192,384 "
     "--steps 3", false,
     command_mup,
     {{"widths", "W,W,...", "widths to train, at most 8 (64,128,256)", ONCE},
      {"steps", "N", "number of steps at each width (5)", ONCE},
      {"base", "W", "model.mup_base_width (the configuration's, or the first "
       "width)", ONCE},
      {"draw", "FILE.svg", "draws the changes against the width", OUTPUT},
      FLAG_SET, FLAG_THREADS, FLAG_JSON}},
    {"schedule", "[NAME|FILE]", 0, 1, "simulates and draws a pipeline schedule",
     "Without a name, or with --list, prints the list of schedules. Times are "
     "for one\nmicro-batch on one rank with all its chunks. The unit of "
     "memory is the activations\nof one micro-batch after its forward pass. "
     "The bubble rate is\n1 - M (F + B + W) / T, where T is the longest time "
     "from the first "
     "to the last action of a rank; the idle share is the part of the time of "
     "all\nranks, from the step's begin to its end, in which nothing is "
     "computed. docs/schedules.md explains the text "
     "form\nof a FILE.",
     "lockstep schedule 1f1b --ranks 4 --microbatches 8 --draw 1f1b.svg\n"
     "lockstep schedule zb-2p --ranks 8 --microbatches 24 --forward 18.522 "
     "--backward-input 18.086 --backward-weight 9.337 --transfer 0.601",
     false, command_schedule,
     {{"list", NULL, "prints the list of schedules", ONCE},
      {"ranks", "P", "number of pipeline ranks", ONCE},
      {"chunks", "V", "stages per rank (the schedule's usual number)",
       ONCE},
      {"group", "N", "interleaved: micro-batches that a chunk takes in a row "
       "(P)",
       ONCE},
      {"microbatches", "M", "micro-batches per step", ONCE},
      {"forward", "MS", "time of the forward pass (1)", ONCE},
      {"backward-input", "MS", "time of the gradient of the inputs (1)", ONCE},
      {"backward-weight", "MS", "time of the gradient of the weights (1)",
       ONCE},
      {"pair", "MS", "time of F overlapped with B and W (the sum of the three)",
       ONCE},
      {"transfer", "MS", "time of a message to another rank (0)",
       ONCE},
      {"memory-limit", "X", "most micro-batches whose activations a rank may "
       "hold", ONCE},
      {"weight-memory", "R", "memory held between B and W, as a share of the "
       "memory after F (0.5)",
       ONCE},
      {"draw", "FILE.svg", "writes a picture of at most 50,000 actions",
       OUTPUT},
      {"text", "FILE", "writes the schedule as text", OUTPUT},
      {"lower", NULL, "with --text: includes sends and receives",
       ONCE}, FLAG_JSON}},
    {"bench kernels", "", 0, 0, "times every kernel against the machine's "
     "limits",
     "Times each kernel at shapes that occur in training. The limit is the "
     "time of its\noperations at peak rate or of its bytes at memory "
     "bandwidth, whichever is longer; both\nrates are measured in the same "
     "run. Matrix products are also compared with oneDNN if\nit is installed.",
     "lockstep bench kernels --only rmsnorm --check all", false,
     command_bench_kernels,
     {{"only", "TEXT", "only kernels whose name contains TEXT", ONCE},
      {"dtype", "TYPE", "float32, bfloat16 or float16 (default: the first two)",
       ONCE},
      {"product", "NAME", "bfloat16 matrix product: pairs (default) or tiles",
       ONCE},
      {"check", "HOW", "how much is compared with the reference, bit by bit: "
       "some (one row in 64 of a matrix product; default), all (minutes) or "
       "nothing", ONCE},
      {"ms", "N", "milliseconds for each kernel (100)", ONCE},
      FLAG_ISA, FLAG_THREADS, FLAG_JSON}},
    {"bench recipes", "", 0, 0, "times products of 8 and 4 bits, rounding "
     "included",
     "Times y, dx and dW of a linear layer by each recipe (docs/precision.md), "
     "with the\nrounding of both operands, in turns with the products of "
     "float32 and bfloat16. A speed\nof 1 is that type's.",
     "lockstep bench recipes --only mxfp8 --tokens 256 --in 256 --out 256 "
     "--rounds 1", false, command_bench_recipes,
     {{"only", "TEXT", "only recipes whose name contains TEXT", ONCE},
      {"tokens", "N", "tokens, in sequences of 1,024 (4096)", ONCE},
      {"in", "N", "in-features (3072)", ONCE},
      {"out", "N", "out-features (768)", ONCE},
      {"rounds", "N", "turns of each; the best one counts (5)", ONCE},
      FLAG_ISA, FLAG_THREADS, FLAG_JSON}},
    {"bench step", "", 0, 0, "times whole training steps, kernel by kernel",
     "Trains on random tokens: one warmup step, then the median of the "
     "measured steps. Prints\ncalls, milliseconds, bytes, FLOPs and rate of "
     "each kernel, and the best time that this\nmachine allows: matrix "
     "products at our rate or oneDNN's, whichever is higher, other\nkernels "
     "at memory bandwidth. All rates are measured in the same run. The rows "
     "add up\nto the step. See docs/profiling.md.",
     "lockstep bench step --model llama-1m --draw step.svg", false,
     command_bench_step,
     {{"model", "NAME", "gpt2-124m (default), gpt2-1.5b, llama-1b, llama-58m, "
       "llama-10m, llama-1m", ONCE},
      {"batch", "N", "sequences per step", ONCE},
      {"micro-batch", "N", "sequences processed at once (the choice of a run)",
       ONCE},
      {"length", "N", "sequence length in tokens", ONCE},
      {"steps", "N", "number of measured steps, at most 64 (3)", ONCE},
      {"dtype", "TYPE", "float32 (default), bfloat16, float16 or float64",
       ONCE},
      {"product", "NAME", "bfloat16 matrix product: pairs (default) or tiles",
       ONCE},
      {"draw", "FILE.svg", "draws the step", OUTPUT},
      {"trace", "FILE.json", "writes a trace for Perfetto", OUTPUT},
      {"csv", NULL, "prints the rows as comma-separated values", ONCE},
      FLAG_DEVICE,
      {"gpu", "HOW", "with --device cuda, numerics.gpu: exact (default) or "
       "fast", ONCE},
      {"attention", "HOW", "with --gpu fast, numerics.attention: auto "
       "(default), own, cudnn or flash", ONCE},
      {"graphs", NULL, "with --device cuda, device_graphs: kernels then have "
       "no times", ONCE},
      FLAG_ISA, FLAG_THREADS, FLAG_JSON}},
    {"bench comm", "", 0, 0, "times collectives between ranks, next to memcpy",
     "Times each algorithm of each collective, between threads or, under "
     "mpirun, between\nprocesses. GB/s is the size of the buffer divided by "
     "the time; sent is what one rank\nsends divided by the time; memcpy is a "
     "copy by all ranks at once, in the same run.",
     "lockstep bench comm --ranks 2 --bytes 16777216", false,
     command_bench_comm,
     {{"ranks", "N", "number of ranks (2, or the processes of mpirun)", ONCE},
      {"bytes", "N", "times one size instead of 64 KiB, 1, 16 and 64 MiB",
       ONCE},
      {"ms", "N", "milliseconds for each row (200)", ONCE},
      FLAG_JSON}},
    {"bench schedules", "", 0, 0, "times the generation of pipeline schedules",
     "Times, on one thread, how long it takes to generate and check each "
     "schedule, to check\nit again, and to simulate it: with 1,000 ranks and "
     "as many micro-batches (DualPipe:\ntwice as many), then with 64 ranks "
     "and 512 micro-batches.",
     "lockstep bench schedules --ranks 64", false, command_bench_schedules,
     {{"ranks", "P", "number of pipeline ranks", ONCE},
      {"microbatches", "M", "micro-batches per step (as many as ranks)", ONCE},
      {"repeats", "N", "reports the best of N measurements (3)", ONCE},
      FLAG_JSON}},
    {"doctor", "", 0, 0, "shows what this machine and this build can do",
     "Each row is a capability: yes or no, the reason, and what to do about "
     "it.\nEvery answer comes from a test that really runs on this machine.\n"
     "--nodes judges the ranks of a cluster: cores, memory, storage, each "
     "link, all-reduces,\nand a burn-in whose bits are compared. Start it "
     "under mpirun, srun or lockstep\nlaunch, one rank for each machine "
     "(docs/doctor.md). Exit code 69: something is not ok.",
     "lockstep doctor\nlockstep doctor --nodes --ranks 2 --seconds 1 "
     "--tolerance 0.99", false, command_doctor,
     {{"nodes", NULL, "judges all ranks and the links between them", ONCE},
      {"ranks", "N", "with --nodes: ranks, as threads (1, or as launched)",
       ONCE},
      {"seconds", "S", "with --nodes: time of the burn-in (5)", ONCE},
      {"tolerance", "X", "with --nodes: worse than the median by more than "
       "this share is slow (0.1)", ONCE},
      {"place", "DIR", "with --nodes: storage to measure (.)", ONCE},
      FLAG_JSON}},
    {"version", "", 0, 0, "prints version, compiler, instruction sets, "
     "libraries", "",
     "lockstep version --json", false, command_version, {FLAG_JSON}},
    {"docs", "options|metrics|commands", 1, 1,
     "prints a generated page of docs/generated", "",
     "lockstep docs options > docs/generated/options.md", true, command_docs,
     {{0}}},
};
const int command_count = (int)(sizeof commands / sizeof *commands);
