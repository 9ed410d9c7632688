# shellcheck shell=bash
# Jobs of a script in two lanes, since most tests wait more than they compute; to be sourced after steps.sh, whose table
# has a line for each. A lane takes the first job that nobody has begun. All are run, whichever fails.

job_names=() job_commands=()

# Adds a job: its name, and the command with its arguments (words without spaces).
job() {
    job_names+=("$1")
    shift
    job_commands+=("$*")
}

# Runs one job; its output comes as it is made with `live`, else in one piece when it ends.
run_job() { # index, live or held
    local name=${job_names[$1]} output=$lanes_dir/$1/output began=$SECONDS status=0
    printf '\n== %s (begun)\n' "$name"
    if [ "$2" = live ]; then
        ${job_commands[$1]} || status=$?
    else
        # What a job has said so far is shown if all is ended.
        trap 'printf "\n== %s (ended from outside)\n" "$name"; cat "$output"; exit 143' TERM
        ${job_commands[$1]} >"$output" 2>&1 || status=$?
        trap - TERM
        printf '\n== %s\n' "$name"
        cat "$output"
    fi
    if [ "$status" -ne 0 ]; then
        name="$name (FAILED)"
        echo "$name" >>"$lanes_dir/failed"
    fi
    printf '%6d  %s\n' $((SECONDS - began)) "$name" >>"$NUTHATCH_STEPS"
}

lane() { # live or held, indices of jobs
    local index show=$1
    shift
    for index in "$@"; do
        if mkdir "$lanes_dir/$index" 2>/dev/null; then run_job "$index" "$show"; fi
    done
}

# Runs all jobs: the first lane begins with the first job, the second with the second one. Fails if one of them does.
run_jobs() {
    local all=("${!job_names[@]}") first second status=0
    lanes_dir=$(mktemp -d)
    end_step
    lane live "${all[@]}" &
    first=$!
    lane held "${all[@]:1}" "${all[0]}" &
    second=$!
    wait "$first" || status=$?
    wait "$second" || status=$?
    if [ -s "$lanes_dir/failed" ]; then
        printf '\n== failed\n' >&2
        cat "$lanes_dir/failed" >&2
        status=1
    fi
    rm -rf "$lanes_dir"
    return "$status"
}
