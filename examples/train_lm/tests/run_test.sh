#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# run_test.sh CASE PROGRAM LAUNCHER...: runs train_lm on ranks and checks what it does. LAUNCHER... is mpiexec with its
# flags, up to the number of ranks. Prints what went wrong and exits with 1.
set -uo pipefail

case_name=$1 program=$2
shift 2
launcher=("$@")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

# A model of a few thousand parameters, and text enough for it: 300 lines of words that follow each other by a rule.
small=(text --classes 300 --context 3 --embedding 8 --hidden 12 --layers 2 --batch 48 --learning-rate 0.01)
awk 'BEGIN { x = 7; for (l = 0; l < 300; ++l) { for (w = 0; w < 12; ++w) { x = (x * 75 + 74) % 65537;
     printf "%s%c%c", w ? " " : "", 97 + x % 20, 97 + (x % 20 + w) % 26 } print "." } }' >text

fail() {
  printf '%s\n' "$case_name: $*" >&2
  for file in out err; do
    [ ! -s $file ] || sed "s/^/  $file: /" $file >&2
  done
  exit 1
}

# run RANKS ARGUMENT...: output in out and err, exit code in $code.
run() {
  local ranks=$1
  shift
  timeout --kill-after=5 60 "${launcher[@]}" "$ranks" "$program" --progress none "$@" >out 2>err </dev/null
  code=$?
  [ $code != 124 ] || fail "hangs: $ranks ranks, $*"
}

# succeeds RANKS ARGUMENT...
succeeds() {
  run "$@"
  [ $code = 0 ] || fail "exit code $code: $*"
}

# is_refused RANKS PATTERN ARGUMENT...: exit code 2, and PATTERN in the only line that the ranks print to stderr.
is_refused() {
  local ranks=$1 pattern=$2
  shift 2
  run "$ranks" "$@"
  [ $code = 2 ] || fail "exit code $code instead of 2: $*"
  [ "$(grep -c '^train_lm: ' err)" = 1 ] || fail "not one line: $*"
  grep '^train_lm: ' err | grep -qE -- "$pattern" || fail "does not say '$pattern': $*"
  ! grep -qE 'terminate called|MPI_A[Bb][Oo][Rr][Tt]|Signal:|Segmentation|AddressSanitizer' err || fail "ends badly: $*"
}

# column FILE NUMBER: without its heading.
column() { tail -n +2 "$1.csv" | cut -d, -f"$2"; }

# same_numbers A B: two files of numbers that differ by at most 1e-5 relative.
same_numbers() {
  [ -s "$1" ] && [ "$(wc -l <"$1")" = "$(wc -l <"$2")" ] &&
    paste "$1" "$2" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= 1e-5 * $1)) exit 1 }'
}

case $case_name in
  losses_do_not_depend_on_the_mesh)
    succeeds 1 "${small[@]}" --steps 20 --report one
    column one 4 >one.losses
    [ "$(wc -l <one.losses)" = 20 ] || fail "not 20 steps"
    for mesh in 2:tp=2 3:tp=3 4:tp=4 2:dp=2 3:dp=3 4:dp=2,tp=2 4:tp=2,dp=2; do
      succeeds "${mesh%%:*}" "${small[@]}" --steps 20 --mesh "${mesh#*:}" --report other
      column other 4 >other.losses
      same_numbers one.losses other.losses ||
        fail "other losses on ${mesh#*:}: $(paste one.losses other.losses | tail -1)"
      cmp -s <(column one 5 | cut -c1-6) <(column other 5 | cut -c1-6) || fail "other validation losses on ${mesh#*:}"
    done
    ;;

  a_resumed_run_is_the_same_run)
    for mesh in 1:tp=1 2:tp=2 4:dp=2,tp=2; do
      ranks=${mesh%%:*} common=("${small[@]}" --mesh "${mesh#*:}" --hook bf16 --evaluate-every 5)
      succeeds "$ranks" "${common[@]}" --steps 10 --report whole --checkpoint whole.ckpt
      state=$(grep '^ *state ' out)
      succeeds "$ranks" "${common[@]}" --steps 5 --report half --checkpoint half.ckpt
      succeeds "$ranks" "${common[@]}" --steps 10 --report half --resume half.ckpt --checkpoint half.ckpt
      [ "$state" = "$(grep '^ *state ' out)" ] || fail "another state on ${mesh#*:}"
      cmp -s whole.ckpt half.ckpt || fail "another checkpoint on ${mesh#*:}"
      cmp -s whole.csv half.csv || fail "another curve on ${mesh#*:}: $(diff whole.csv half.csv)"
      [ "$(wc -l <whole.csv)" = 11 ] || fail "not 10 steps"
    done
    # What hooks remember goes on too, and nothing of an earlier step is left.
    for hook in 'ef(int8)' powersgd:rank=2,start=3 'ef(topk:ratio=0.05)' 'bf16(powersgd:rank=1,start=0)'; do
      common=("${small[@]}" --mesh "dp=2,tp=2" --hook "$hook" --evaluate-every 5 --checkpoint-every 2)
      succeeds 4 "${common[@]}" --steps 10 --report whole --checkpoint whole.ckpt
      succeeds 4 "${common[@]}" --steps 5 --report half --checkpoint half.ckpt
      succeeds 4 "${common[@]}" --steps 10 --report half --resume half.ckpt --checkpoint half.ckpt
      cmp -s whole.ckpt half.ckpt || fail "another checkpoint with $hook"
      ls whole.ckpt.hook-10.tp* >/dev/null || fail "no state of $hook"
      [ "$(find . -name '*.ckpt.hook-*' | wc -l)" = 12 ] || fail "state files of earlier steps: $(echo ./*.ckpt.hook-*)"
      rm whole.ckpt* half.ckpt*
    done
    # On more and fewer ranks too, where not the bits but what is still to be delivered stays.
    succeeds 2 "${small[@]}" --mesh dp=2 --hook 'ef(int8)' --steps 4 --checkpoint two.ckpt
    succeeds 4 "${small[@]}" --mesh dp=4 --hook 'ef(int8)' --steps 6 --resume two.ckpt --checkpoint two.ckpt
    succeeds 1 "${small[@]}" --mesh dp=1 --hook 'ef(int8)' --steps 8 --resume two.ckpt
    # The checkpoint holds the whole model, so another mesh can go on with it.
    succeeds 2 "${small[@]}" --steps 4 --report part --checkpoint part.ckpt
    succeeds 1 "${small[@]}" --steps 9 --report part --resume part.ckpt
    succeeds 1 "${small[@]}" --steps 9 --report whole
    column whole 4 >whole.losses
    column part 4 >part.losses
    same_numbers whole.losses part.losses || fail "another mesh goes on with other losses"
    ;;

  bad_checkpoints_are_refused)
    succeeds 2 "${small[@]}" --steps 2 --checkpoint good
    head -c 5000 good >shortened
    head -c 20 good >stub
    { head -c 6000 good; printf X; tail -c +6002 good; } >damaged
    for file in shortened stub damaged text missing .; do
      is_refused 2 "'$file'" "${small[@]}" --steps 4 --resume $file
    done
    is_refused 2 '--hidden 12, not 13' "${small[@]}" --hidden 13 --steps 4 --resume good
    is_refused 1 '--seed 1, not 2' "${small[@]}" --seed 2 --steps 4 --resume good
    sed -i '1s/./X/' text
    is_refused 1 'vocabulary|text' "${small[@]}" --steps 4 --resume good
    is_refused 2 'noop' "${small[@]}" --mesh dp=2 --hook noop --steps 2 --checkpoint other
    succeeds 2 "${small[@]}" --mesh dp=2 --hook "ef(int8)" --steps 2 --checkpoint stateful
    is_refused 2 'saved by hook ef\(int8\)' "${small[@]}" --mesh dp=2 --hook "ef(int4)" --steps 4 --resume stateful
    is_refused 2 'hook ef\(int8\), whose residuals hook bf16' "${small[@]}" --mesh dp=2 --hook bf16 --steps 4 --resume stateful
    truncate --size=-1 stateful.hook-2.tp0.1.1
    is_refused 2 'stateful.hook-2.tp0.1.1": is cut short' "${small[@]}" --mesh dp=2 --hook "ef(int8)" --steps 4 --resume stateful
    rm stateful.hook-2.tp0
    is_refused 2 'stateful.hook-2.tp0": cannot be read' "${small[@]}" --mesh dp=2 --hook "ef(int8)" --steps 4 --resume stateful
    ;;

  mistakes_are_one_line)
    : >empty
    printf 'a\0b' >binary
    mkdir folder
    is_refused 2 "'missing'.*No such file" missing
    is_refused 2 "'empty' is empty" text empty
    is_refused 2 "'binary' is no text" binary
    is_refused 2 "'folder'.*directory" folder
    is_refused 2 'too short' "${small[@]}" --context 4000
    is_refused 2 '3 ranks.*2' "${small[@]}" --mesh tp=3
    is_refused 3 '4 ranks.*3' "${small[@]}" --mesh dp=2,tp=2
    is_refused 2 "'pp'" "${small[@]}" --mesh pp=2
    is_refused 2 '--mesh tp' "${small[@]}" --mesh tp
    is_refused 2 '--mesh tp=2,tp=1' "${small[@]}" --mesh tp=2,tp=1
    is_refused 2 '--mesh tp=0' "${small[@]}" --mesh tp=0
    is_refused 2 '--mesh tp=two' "${small[@]}" --mesh tp=two
    is_refused 2 '--hook zip.*allreduce' "${small[@]}" --hook zip
    is_refused 2 '--hook bf16\(' "${small[@]}" --hook 'bf16('
    is_refused 2 '--bogus' "${small[@]}" --bogus
    is_refused 2 '--steps' "${small[@]}" --steps 0
    is_refused 2 '--seconds' "${small[@]}" --seconds nan
    is_refused 2 '--batch 1' "${small[@]/48/1}" --mesh dp=2
    is_refused 2 'no/such/report' "${small[@]}" --report no/such/report
    is_refused 2 'no/such/checkpoint' "${small[@]}" --checkpoint no/such/checkpoint
    is_refused 2 'learning-rate' "${small[@]/0.01/1e38}" --steps 50
    ;;

  every_hook_runs)
    succeeds 1 "${small[@]}" --steps 8 --report reference
    column reference 4 | tail -1 >reference.loss
    for hook in allreduce fp16 bf16 'fp16(allreduce)' 'bf16(allreduce)' 'ef(bf16)' bf16:float_second_hop=1 'bf16(noop)' noop \
      int8 'int8:stochastic=1' 'ef(int4)' 'ef(e4m3)' 'ef(e5m2)' onebit 'powersgd:rank=2,start=2' 'bf16(powersgd:rank=2,start=2)' \
      'batched_powersgd:rank=2,start=2' 'powersgd:rank=1,start=0,pays=1' 'ef(topk:ratio=0.1)' 'ef(randomk:ratio=0.2)' \
      'mixed:type=bfloat16(allreduce)' 'post_local_sgd:start=4(bf16)'; do
      succeeds 2 "${small[@]}" --steps 8 --mesh dp=2 --hook "$hook"
      case $hook in
        allreduce) ! grep -q 'of which arithmetic' out ;;
        *) [ "$(grep -c 'of which arithmetic.*' out)" = 2 ] && grep -q ': \(pays\|does not pay\),' out ;;
      esac || fail "does not say whether $hook pays"
      case $hook in
        *powersgd*) grep -q 'hook  *PowerSGD: ' out || fail "$hook does not say what it did" ;;
        onebit) grep -qF 'hook ef(onebit_codec)' out || fail "the report does not name the hook $hook" ;;
        *) grep -qF "hook $hook" out || fail "the report does not name the hook $hook" ;;
      esac
      column train_lm 4 | tail -1 >loss
      # 16 bits on the wire change the loss a little, no reduction at all more.
      paste reference.loss loss | awk '{ d = $1 - $2; exit !(d < 0.2 && d > -0.2) }' || fail "hook $hook: loss $(cat loss)"
      bytes=$(sed -nE 's/.* ([0-9,]+) parameter gradients/\1/p' out | tr -d ,)
      case $hook in
        noop | *'(noop)') [ "$bytes" = 0 ] ;;
        allreduce) full=$bytes && [ "$bytes" -gt 0 ] ;;
        bf16:*) [ $((bytes * 4)) = $((full * 3)) ] ;;
        fp16* | bf16 | 'bf16(allreduce)' | 'ef(bf16)' | mixed*) [ $((bytes * 2)) = "$full" ] ;;
        *pays=1) [ "$bytes" -le "$full" ] ;;
        *) [ "$bytes" -lt "$full" ] ;;
      esac || fail "hook $hook sends $bytes bytes for gradients, allreduce $full"
    done
    ;;

  means_bring_drifting_ranks_together)
    # Ranks that reduce nothing but average after each step are those that reduce, but for Adam's view of the gradients.
    succeeds 2 "${small[@]}" --steps 8 --mesh dp=2
    column train_lm 4 | tail -1 >reference.loss
    succeeds 2 "${small[@]}" --steps 8 --mesh dp=2 --hook noop --average-every 1
    column train_lm 4 | tail -1 >loss
    paste reference.loss loss | awk '{ d = $1 - $2; exit !(d < 0.05 && d > -0.05) }' || fail "loss $(cat loss)"
    bytes=$(sed -nE 's/.* ([0-9,]+) parameter gradients/\1/p' out | tr -d ,)
    [ "$bytes" -gt 0 ] || fail "the means send nothing"
    succeeds 2 "${small[@]}" --steps 7 --mesh dp=2 --hook 'post_local_sgd:start=3(allreduce)' --average-every 3
    is_refused 2 'average-every' "${small[@]}" --steps 7 --average-every -1
    ;;

  the_report_has_it_all)
    succeeds 2 "${small[@]}" --steps 30 --evaluate-every 10 --report result
    for word in 'tokens ' 'vocabulary  *300 byte-pair classes' 'mesh dp=1,tp=2, hook allreduce' '30 of 48 rows' 'tokens/s' '% loss, .* % communication' \
      'bytes sent per step' 'validation perplexity' 'unigram baseline' 'result.csv, result.svg'; do
      grep -q -- "$word" out || fail "the report does not say '$word'"
    done
    model=$(sed -nE 's/ *validation perplexity *([0-9.]+) .*/\1/p' out)
    unigram=$(sed -nE 's/ *unigram baseline *([0-9.]+) .*/\1/p' out)
    awk "BEGIN { exit !($model < $unigram) }" || fail "perplexity $model, unigram $unigram"
    [ "$(head -1 result.csv)" = step,tokens,learning_rate,training_loss,validation_loss ] || fail "heading of the CSV"
    { [ "$(wc -l <result.csv)" = 31 ] && [ "$(column result 5 | grep -c .)" = 3 ]; } || fail "lines of the CSV"
    { grep -q '<svg ' result.svg && grep -q '</svg>' result.svg; } || fail "no SVG"
    ! grep -q . err || fail "something on stderr"
    ;;

  time_limit_and_progress)
    run 2 "${small[@]}" --seconds 2 --progress lines
    [ $code = 0 ] || fail "exit code $code"
    grep -qE '^ *[0-9]+%  step [0-9]+  loss [0-9.]+  [0-9]+ tokens/s  0:0[0-9] left$' out || fail "no progress"
    run 2 "${small[@]}" --steps 5 --progress bar
    tr '\r' '\n' <out | grep -qE '^\[#+\.*\] +100%  step 5  loss .* 0:00 left' || fail "no bar"
    ;;

  the_default_text_has_16384_classes)
    command -v bible >/dev/null || { echo "SKIPPED: the program 'bible' is not installed"; exit 77; }
    succeeds 2 --context 2 --embedding 4 --hidden 4 --validation-every 500 --steps 3
    grep -q 'vocabulary  *16384 byte-pair classes$' out || fail "other classes"
    grep -q 'King James' out || fail "other text"
    succeeds 2 --tokenizer word --context 2 --embedding 4 --hidden 4 --validation-every 500 --steps 1
    grep -q 'word classes (the text has no more; --classes is 16384)' out || fail "does not say that there are fewer words"
    ;;

  *) fail "no such case" ;;
esac
