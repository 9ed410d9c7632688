# shellcheck shell=bash
# Steps of a script with their seconds, shown as a table at the end; to be sourced. Scripts that are called share the table.

step_name="" step_began=0

# Ends the step before, and begins one of this name.
step() {
    end_step
    step_name=$1 step_began=$SECONDS
    printf '\n== %s\n' "$step_name"
}

end_step() {
    [ -z "$step_name" ] || printf '%6d  %s\n' $((SECONDS - step_began)) "$step_name" >>"$NUTHATCH_STEPS"
    step_name=""
}

# For the trap of EXIT. Whoever began the table prints it.
show_steps() {
    local status=$?
    [ -z "$step_name" ] || [ $status -eq 0 ] || step_name="$step_name (FAILED)"
    end_step
    if $owns_steps; then
        printf '\n== seconds of each step\n'
        cat "$NUTHATCH_STEPS"
        printf '%6d  in all\n' "$SECONDS"
        rm -f "$NUTHATCH_STEPS"
    fi
    return $status
}

owns_steps=false
if [ -z "${NUTHATCH_STEPS-}" ]; then
    NUTHATCH_STEPS=$(mktemp)
    owns_steps=true
    export NUTHATCH_STEPS
fi
# Whoever is told to end, waits for what it has started, which is told too.
trap 'exit 143' TERM
trap show_steps EXIT
