/* SPDX-License-Identifier: Apache-2.0 */
/* commands.c - the table of commands, and finding the row that was meant. */
#include <string.h>
#include "cli/command.h"
#include "cli/run.h"

#define FLAG_JSON {"json", NULL, "the same as JSON", false}

#define FLAG_SET {"set", "K=V", "one option; lockstep help options", true}
#define FLAG_WEIGHTS                                                         \
    {"weights", "NAME", "trained, or ema: the moving average (trained)", false}
#define FLAG_ISA {"isa", "NAME", "auto, plain, avx2, avx512 or neon", false}
#define FLAG_THREADS                                                         \
    {"threads", "N", "threads; 0 or not given: the cores of this process",    \
     false}

#define FLAG_TRACE                                                           \
    {"trace", "FILE.json", "every span of three steps, for Perfetto; a file "  \
     "a rank", false}

#define FLAG_RANKS                                                           \
    {"ranks", "N", "ranks, threads of this process: docs/mesh.md (1)", false}

const struct command commands[] = {
    {"train", "CONFIG", 1, 1, "a run, from a configuration to a checkpoint",
     "Plans all memory, takes it, trains. Writes metrics.jsonl, checkpoints "
     "and report.html\ninto the run's directory. SIGTERM, SIGUSR1 and Ctrl-C "
     "save and stop (exit code 75).",
     "lockstep train examples/01_first_run/config.yaml --run runs/first", false,
     command_train,
     {FLAG_SET, {"run", "DIR", "directory of the run (run.dir)", false},
      FLAG_RANKS, FLAG_THREADS, FLAG_ISA, FLAG_TRACE,
      {"dry-run", NULL, "prints the plan and touches nothing", false},
      FLAG_JSON}},
    {"resume", "RUN", 1, 1, "a stopped run goes on, with the same bits",
     "From its newest whole checkpoint. --set may change how the run goes on "
     "(its length,\nthe rate, what is watched and kept), not what was trained "
     "so far.",
     "lockstep resume runs/first --set train.steps=600", false, command_resume,
     {FLAG_SET, FLAG_RANKS, FLAG_THREADS, FLAG_ISA, FLAG_TRACE, FLAG_JSON}},
    {"verify", "CONFIG", 1, 1, "the same steps under several layouts",
     "Trains a few steps with one rank, then under each layout, and compares "
     "loss,\ngradients and weights bit by bit. Exit code 0 only when every row "
     "holds what it\nclaims. FILE has a layout a line: ranks=4 "
     "mesh.tensor=2 ...",
     "lockstep verify examples/01_first_run/config.yaml --ranks 4", false,
     command_verify,
     {{"ranks", "N", "most ranks of the usual layouts (2)", false},
      {"layouts", "FILE", "layouts instead of the usual ones", false},
      {"steps", "N", "steps to compare (5)", false},
      {"dtype", "TYPE", "float32, float64, bfloat16 or float16", false},
      {"draw", "FILE.svg", "draws the loss curves over each other", false},
      FLAG_SET, FLAG_JSON}},
    {"generate", "MODEL", 1, 1, "continues a text, token by token",
     "Greedy with --temperature 0. Stops at the model's end-of-text token. "
     "The same seed\ngives the same text, on any machine and with any number "
     "of threads.",
     "lockstep generate runs/first --prompt \"In the beginning\" --tokens 80",
     false, command_generate,
     {FLAG_WEIGHTS,
      {"prompt", "TEXT", "text to continue; \"\" begins a new one", false},
      {"tokens", "N", "most tokens to write (100, or what fits)", false},
      {"temperature", "X", "0 takes the likeliest token (0.8)", false},
      {"top-k", "K", "draws among the K likeliest; 0: all (0)", false},
      {"top-p", "P", "among the likeliest that reach P together (1)", false},
      {"seed", "S", "of the random numbers (1)", false},
      {"dtype", "TYPE", "float32 (default), bfloat16, float16 or float64",
       false},
      {"stats", NULL, "tokens a second beside what reading the weights allows",
       false},
      FLAG_THREADS, FLAG_JSON}},
    {"score", "MODEL", 1, 1, "the loss of a model on given ids",
     "FILE.json is an array of equally long arrays of ids. The loss is the "
     "mean over all\nnext-token targets; gradients are those of that mean, "
     "under Hugging Face names\n(a tied tensor once); logits are [sequences, "
     "length, vocabulary].",
     "echo '[[7, 1, 2], [8, 3, 5]]' > ids.json\n"
     "lockstep score runs/first --tokens ids.json --json", false,
     command_score,
     {FLAG_WEIGHTS,
      {"tokens", "FILE.json", "ids to score", false},
      {"dtype", "TYPE", "float32 (default), float64, bfloat16 or float16",
       false},
      {"logits", "OUT.safetensors", "writes the logits", false},
      {"gradients", "OUT.safetensors", "writes every gradient", false},
      FLAG_THREADS, FLAG_JSON}},
    {"eval", "MODEL", 1, 1, "answers of a model to tasks, by likelihood",
     "Accuracy, perplexity and bits per byte as lm-evaluation-harness defines "
     "them, from\nJSON-lines files: HellaSwag, ARC, LAMBADA, questions with "
     "choices; or of texts.\nNeither the batch nor the number of threads or "
     "ranks changes a bit. docs/evaluation.md\nsays more.",
     "lockstep eval runs/first --task demo/corpus/valid.jsonl --kind "
     "perplexity", false, command_eval,
     {FLAG_WEIGHTS,
      {"task", "FILE,...", "files of tasks, also .gz and .zst", true},
      {"kind", "KIND,...", "hellaswag, arc, lambada, multiple_choice or "
       "perplexity; one for all, or one each (what the file looks like)",
       false},
      {"shots", "N", "answered items before each (0)", false},
      {"examples", "FILE", "where those come from (the task's first items)",
       false},
      {"field", "KEY", "of documents in .jsonl and .parquet (text)", false},
      {"limit", "N", "items of each task, at most; 0: all (0)", false},
      {"context", "N", "most tokens of a request (the model's context)", false},
      {"no-special", NULL, "without the tokenizer's first tokens", false},
      {"batch", "N", "rows at once (some thousand tokens)", false},
      {"dtype", "TYPE", "float32 (default), float64, bfloat16 or float16",
       false},
      {"out", "FILE.jsonl", "writes every item with its likelihoods", false},
      {"ranks", "N", "ranks that share the items, threads of this process or "
       "those of mpirun (1)", false},
      FLAG_THREADS, FLAG_JSON}},
    {"compare", "MODEL_A MODEL_B", 2, 2,
     "where two models, or two runs, differ first",
     "Exit code 0: equal, every bit; 1: they differ. Two runs are compared by "
     "options, by\nlines of metrics as far as the clock does not show in them, "
     "and by the newest\ncheckpoint that both have; options alone make no "
     "difference. Two checkpoints are\ncompared with their optimizer state, "
     "anything else by weights alone, whatever\nlayouts wrote them.",
     "lockstep compare runs/first demo/run --tensors", false,
     command_compare,
     {{"tensors", NULL, "a line for each tensor that differs", false},
      {"draw", "FILE.svg|FILE.html", "loss curves of two runs, and the "
       "difference", false},
      FLAG_JSON}},
    {"metrics", "RUN", 1, 1, "the metrics of a run as a table, CSV or JSON",
     "A few lines for people; --csv and --json have every line of "
     "metrics.jsonl and every\nmetric that occurs, an empty cell where a line "
     "has none. A run may be under way.",
     "lockstep metrics runs/first --csv", false, command_metrics,
     {{"csv", NULL, "comma-separated values, a line each", false},
      {"lines", "N", "lines of the table, evenly spread (20)", false},
      FLAG_JSON}},
    {"tokenize", "TOKENIZER.json FILE...", 2, OPERANDS_ANY, "text to ids",
     "With --out the documents of the files (docs/data.md says what is one) "
     "become token\nfiles: a single one, or shards in a directory. After a "
     "kill the same call goes on\nbehind the last whole shard. Without --out "
     "the one file is one text, encoded as the\n`tokenizers` library's "
     "encode(text) does (--no-special: add_special_tokens=False);\nthe first "
     "tokens and a summary are printed. --offsets adds the bytes and the "
     "characters\nof the text that each token came from, from the first to "
     "before the last number, as\nthe tokenizer's own library tells them.",
     "lockstep tokenize demo/tokenizer.json README.md --ids\n"
     "lockstep tokenize demo/tokenizer.json README.md --offsets\n"
     "lockstep tokenize demo/tokenizer.json demo/corpus --out shards",
     false, command_tokenize,
     {{"ids", NULL, "prints all ids as one JSON array", false},
      {"offsets", NULL, "says where each token came from; with --ids, all "
       "as JSON lines", false},
      {"out", "FILE.tokens|DIR", "writes one token file, or shards", false},
      {"shard-tokens", "N", "a shard ends after this many (100000000)", false},
      {"field", "KEY", "of .jsonl and .parquet (text)", false},
      {"chat", "NAME", "template of conversations in .jsonl (data.chat)",
       false},
      {"fim-rate", "X", "share of documents for fill-in-the-middle (0)",
       false},
      {"no-special", NULL, "without the template's tokens", false},
      FLAG_THREADS, FLAG_JSON}},
    {"data show", "CONFIG", 1, 1, "what a step of a run sees",
     "Which documents the samples of a step are made of, with their texts, and "
     "what each\nsource has given by then. CONFIG may also be a run. The order "
     "is a function of the\nconfiguration and the step: nothing is trained.",
     "lockstep data show runs/first --step 100", false, command_data_show,
     {{"step", "N", "the step, from 1 (1)", false},
      {"samples", "N", "samples of it that are shown (4)", false},
      {"from", "I", "the first of them, from 0 (0)", false},
      {"ids", NULL, "prints the ids instead of text", false},
      FLAG_SET, FLAG_JSON}},
    {"data verify", "PATH...", 1, OPERANDS_ANY,
     "reads files of data to the end",
     "Checksums, ids, tables, UTF-8 and JSON of every file, and whether a "
     "token file is\nwhat it was when it was sealed. Whole ones are sealed, so "
     "that a run opens them\nwithout reading them. A PATH may also be a "
     "configuration or a run: its data, with ids\nbelow the model's "
     "vocabulary, and what data.cache keeps of it.",
     "lockstep data verify demo/corpus/train.jsonl\n"
     "lockstep data verify shards --tokenizer demo/tokenizer.json",
     false, command_data_verify,
     {{"tokenizer", "FILE", "refuses ids that it has not, and files made with "
       "another", false},
      {"vocab", "N", "refuses ids from N on", false},
      {"field", "KEY", "of .jsonl and .parquet (text)", false},
      {"chat", "NAME", "template of conversations in .jsonl (data.chat)",
       false},
      {"accept", NULL, "seals files anew that were changed", false},
      FLAG_SET, FLAG_JSON}},
    {"tokenizer train", "FILE...", 1, OPERANDS_ANY,
     "learns a byte-level BPE tokenizer",
     "Files are .txt, .jsonl or directories of them. The result is a Hugging "
     "Face\ntokenizer.json; neither threads nor the order of files change it.",
     "lockstep tokenizer train demo/corpus/train.jsonl --vocab 2048 --out "
     "tokenizer.json",
     false, command_tokenizer_train,
     {{"vocab", "N", "tokens wanted, at least 257", false},
      {"out", "TOKENIZER.json", "file to write", false},
      {"field", "KEY", "key of the text in .jsonl (text)", false},
      {"min-count", "N", "rarer pairs are not merged (1)", false},
      {"memory", "MiB", "for words and merging (2048); more words go to a "
       "file beside the result, the rarest may be left out", false},
      {"end-of-text", "TOKEN", "name of that token (<|endoftext|>)", false},
      FLAG_THREADS, FLAG_JSON}},
    {"import", "HF_DIR RUN", 2, 2, "a Hugging Face directory as a run",
     "The run stands at step 0: generate, score, export and init.from take "
     "it. Every\ntensor is used exactly once, or named in an error.",
     "lockstep import SmolLM-135M runs/smol", false, command_import,
     {{"adapter", "DIR", "low-rank adapters of PEFT to stand beside the "
       "weights", false},
      FLAG_JSON}},
    {"export", "MODEL HF_DIR", 2, 2, "a model as a Hugging Face directory",
     "Writes config.json, sharded safetensors and the tokenizer, then reads "
     "them back:\na forward pass must give the same logits in every bit.",
     "lockstep export runs/first exported", false, command_export,
     {FLAG_WEIGHTS,
      {"adapter", NULL, "low-rank adapters alone, as PEFT reads them; else "
       "they are merged", false},
      FLAG_JSON}},
    {"plan", "CONFIG", 1, 1, "what a configuration would do, before it does",
     "Prints the objects that the trainer runs. CONFIG may also be a run.",
     "lockstep plan examples/01_first_run/config.yaml --explain memory", false,
     command_plan,
     {{"explain", "VIEW",
       "summary, parameters, program, memory, schedule, numerics, ramp or mesh",
       false},
      FLAG_SET, {"ranks", "N", "ranks of the run (1)", false},
      {"rank", "R", "the rank whose part is shown (0)", false},
      {"step", "N", "with a ramp of batches: that of step N, from 1 (the last)",
       false},
      {"draw", "FILE.svg", "with --explain mesh or memory: a picture", false},
      FLAG_THREADS, FLAG_JSON}},
    {"mup", "CONFIG", 1, 1, "a coordinate check: does a rate hold over widths",
     "Trains the model at several widths, with and without muP, on one rank at "
     "a\nconstant rate, and says how far each activation moved. What grows "
     "with the width will need\nanother rate there (docs/mup.md). Heads and "
     "feed-forward width grow alike.",
     "lockstep mup examples/01_first_run/config.yaml --widths 96,192,384 "
     "--steps 3", false,
     command_mup,
     {{"widths", "W,W,...", "widths to train, at most 8 (64,128,256)", false},
      {"steps", "N", "steps of each (5)", false},
      {"base", "W", "model.mup_base_width of the check (the configuration's, "
       "or the first width)", false},
      {"draw", "FILE.svg", "draws the changes over the width", false},
      FLAG_SET, FLAG_THREADS, FLAG_JSON}},
    {"schedule", "[NAME|FILE]", 0, 1, "a pipeline schedule, played and drawn",
     "Times are of one micro-batch on one rank, all its chunks. Memory is "
     "counted in what\none micro-batch holds after its forward. The bubble "
     "rate is 1 - M (F + B + W) / the\nlongest time from first to last action "
     "of a rank. Without a name: the schedules.\nThe text form of a FILE: "
     "docs/schedules.md.",
     "lockstep schedule 1f1b --ranks 4 --microbatches 8 --draw 1f1b.svg\n"
     "lockstep schedule zb-2p --ranks 8 --microbatches 24 --forward 18.522 "
     "--backward-input 18.086 --backward-weight 9.337 --transfer 0.601",
     false, command_schedule,
     {{"ranks", "P", "ranks of the pipeline", false},
      {"chunks", "V", "stages a rank (as the schedule has)",
       false},
      {"group", "N", "interleaved: micro-batches a chunk takes in a row (P)",
       false},
      {"microbatches", "M", "micro-batches of a step", false},
      {"forward", "MS", "milliseconds of F (1)", false},
      {"backward-input", "MS", "milliseconds of B (1)", false},
      {"backward-weight", "MS", "milliseconds of W (1)", false},
      {"pair", "MS", "F beside B and W (the three one by one)", false},
      {"transfer", "MS", "from the end of an action to another rank (0)",
       false},
      {"memory-limit", "X", "micro-batches that a rank may hold", false},
      {"weight-memory", "R", "held between B and W over held after F (0.5)",
       false},
      {"draw", "FILE.svg", "writes a picture", false},
      {"text", "FILE", "writes the text form", false},
      {"lower", NULL, "with the transfers in it", false}, FLAG_JSON}},
    {"bench kernels", "", 0, 0, "every kernel beside what the machine allows",
     "Times each kernel at shapes of training. The limit is the larger of its "
     "operations\nat the peak and its bytes at the memory bandwidth, both "
     "measured in the same\nrun. oneDNN is shown beside products where it is "
     "installed.",
     "lockstep bench kernels --only rmsnorm --check all", false,
     command_bench_kernels,
     {{"only", "TEXT", "kernels whose name contains it", false},
      {"dtype", "TYPE", "float32, bfloat16 or float16 (default: the first two)",
       false},
      {"product", "NAME", "of bfloat16: pairs (default) or tiles", false},
      {"check", "HOW", "what is compared with the reference bit by bit: some "
       "(one row in 64 of products; default), all (minutes) or nothing", false},
      {"ms", "N", "milliseconds for each kernel (100)", false},
      FLAG_ISA, FLAG_THREADS, FLAG_JSON}},
    {"bench step", "", 0, 0, "whole training steps, kernel by kernel",
     "Random tokens, one step to warm up, the median of the rest. Each "
     "kernel's calls,\nmilliseconds, bytes, FLOPs, rate, and the time that "
     "this machine would need at best:\nproducts at the better of our rate "
     "and oneDNN's, the rest at the bandwidth of memory,\nall measured in "
     "the same run. The rows add up to the step. docs/profiling.md says more.",
     "lockstep bench step --model llama-1m --draw step.svg", false,
     command_bench_step,
     {{"model", "NAME", "gpt2-124m (default), llama-58m, llama-10m, llama-1m",
       false},
      {"batch", "N", "sequences of a step", false},
      {"micro-batch", "N", "of them at once; not given: as a run chooses",
       false},
      {"length", "N", "tokens of a sequence", false},
      {"steps", "N", "measured steps, at most 64 (3)", false},
      {"dtype", "TYPE", "float32 (default), bfloat16, float16 or float64",
       false},
      {"product", "NAME", "of bfloat16: pairs (default) or tiles", false},
      {"draw", "FILE.svg", "a picture of the step", false},
      {"trace", "FILE.json", "every span, for Perfetto", false},
      {"csv", NULL, "the rows as comma-separated values", false},
      FLAG_ISA, FLAG_THREADS, FLAG_JSON}},
    {"bench comm", "", 0, 0, "collectives between ranks beside memcpy",
     "Each collective, each way of doing it, between threads or, under "
     "mpirun, processes.\nGB/s is the buffer over the time, sent what a rank "
     "sends over the time; memcpy is\na copy by all ranks at once in the same "
     "run.",
     "lockstep bench comm --ranks 2 --bytes 16777216", false,
     command_bench_comm,
     {{"ranks", "N", "ranks (2, or those of mpirun)", false},
      {"bytes", "N", "one size instead of 64 KiB, 1, 16 and 64 MiB", false},
      {"ms", "N", "milliseconds for each row (200)", false},
      FLAG_JSON}},
    {"bench schedules", "", 0, 0, "making, checking and playing schedules",
     "Milliseconds of one thread for each schedule: made and checked, checked "
     "again, and\nsimulated; 1,000 ranks with as many micro-batches as ranks "
     "(DualPipe: twice), then\n64 ranks with 512.",
     "lockstep bench schedules --ranks 64", false, command_bench_schedules,
     {{"ranks", "P", "ranks of the pipeline", false},
      {"microbatches", "M", "micro-batches (as many as ranks)", false},
      {"repeats", "N", "the best of N counts (3)", false},
      FLAG_JSON}},
    {"doctor", "", 0, 0, "what this machine and this build can do",
     "Each row is a capability: yes or no, why, and what to do about it.\n"
     "Every probe really runs: it opens, reads, adds, writes.",
     "lockstep doctor", false, command_doctor, {FLAG_JSON}},
    {"version", "", 0, 0, "version, compiler, instruction sets, libraries", "",
     "lockstep version --json", false, command_version, {FLAG_JSON}},
    {"docs", "options|metrics|commands", 1, 1,
     "prints a generated page of docs/generated", "",
     "lockstep docs options > docs/generated/options.md", true, command_docs,
     {{0}}},
};
const int command_count = (int)(sizeof commands / sizeof *commands);

static int word_count(const char *name)
{
    return strchr(name, ' ') != NULL ? 2 : 1;
}

/* Does argv begin with the words of `name`? */
static bool is_named(const char *name, int argc, char **argv)
{
    const char *space = strchr(name, ' ');

    if (space == NULL) return strcmp(name, argv[0]) == 0;
    return argc >= 2 && strlen(argv[0]) == (size_t)(space - name) &&
           strncmp(name, argv[0], strlen(argv[0])) == 0 &&
           strcmp(space + 1, argv[1]) == 0;
}

/* "bench" stands before "kernels" and "step" but is no command alone. */
static status command_incomplete(const char *word, const char *second)
{
    const size_t length = strlen(word);
    char all[128] = "";
    status code;

    for (int i = 0; i < command_count; i++) {
        const char *name = commands[i].name;

        if (strncmp(name, word, length) != 0 || name[length] != ' ') continue;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
                 all[0] ? " or " : "", name);
    }
    if (all[0] == '\0') return OK;
    code = status_fail(ERR_USAGE, __FILE__, __LINE__,
                       "%s%s%s is not a command; expected %s", word,
                       second ? " " : "", second ? second : "", all);
    return status_hint(code, "lockstep --help lists the commands");
}

enum { NAMES_MAX = 64, NAME_BYTES = 24 };

static status command_unknown(int argc, char **argv)
{
    char words[NAMES_MAX][NAME_BYTES]; /* first words of the names */
    const char *names[NAMES_MAX];
    const char *nearest;
    status code;
    int count = 0;

    TRY(command_incomplete(argv[0], argc > 1 ? argv[1] : NULL));
    for (int i = 0; i < command_count && count < NAMES_MAX; i++) {
        if (commands[i].hidden) continue;
        snprintf(words[count], NAME_BYTES, "%.*s",
                 (int)strcspn(commands[i].name, " "), commands[i].name);
        names[count] = words[count];
        count++;
    }
    nearest = text_nearest(argv[0], names, count);
    code = status_fail(ERR_USAGE, __FILE__, __LINE__,
                       "there is no command %s%s%s", argv[0],
                       nearest ? "; the nearest is " : "",
                       nearest ? nearest : "");
    return status_hint(code, "lockstep --help lists the commands");
}

status command_find(int argc, char **argv, const struct command **command,
                    int *words)
{
    *words = 0;
    for (int i = 0; i < command_count; i++) {
        const int count = word_count(commands[i].name);

        if (count > *words && is_named(commands[i].name, argc, argv)) {
            *command = &commands[i];
            *words = count;
        }
    }
    return *words > 0 ? OK : command_unknown(argc, argv);
}
