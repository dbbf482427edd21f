-- Acquires and releases several locks, each as if it were alone: one does not
-- depend on what becomes of another.
--
-- KEYS[i]  lock
-- ARGV     three for each lock: lease, owner and '' acquire it without a counter;
--          owner, PUBLISH or SPUBLISH or both, and unlock channel release it
--
-- reply    those of acquire and release, in order, errors as text
return outcomes(#KEYS, function(i)
    local first, second, channel = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
    if channel == '' then
        return acquire(KEYS[i], nil, first, second)
    end
    return release(KEYS[i], first, second, channel)
end)
