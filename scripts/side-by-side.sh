# For bash scripts to source: runs commands side by side, as many as there are cores.
#   side_by_side COMMAND...    starts it as soon as a core is free
#   all_succeeded              waits for all that were started; fails if one of them failed

side_by_side_pids=()

side_by_side() {
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
        wait -n || true
    done
    "$@" &
    side_by_side_pids+=($!)
}

# By their numbers, since `wait -n` says nothing of a command that has ended before.
all_succeeded() {
    local pid failed=0
    for pid in "${side_by_side_pids[@]}"; do
        wait "$pid" || failed=1
    done
    side_by_side_pids=()
    return "$failed"
}
