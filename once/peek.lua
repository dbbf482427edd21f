-- Reads the state of a name without its lock.
--
-- KEYS[1]  companion
-- KEYS[2]  lock
--
-- reply    {"done", fingerprint, result}
--          {"busy", fingerprint or nil, rest of the lease in ms}: a run is in progress. Without a fingerprint
--          it has not said yet which one it has.
--          {"ended", fingerprint}: a run has ended without a result
--          {"free", nil}
local s = redis.call('hmget', KEYS[1], 'owner', 'fingerprint', 'result')
if s[3] then
    return {'done', s[2], s[3]}
end
-- A key that is no lock is left to the request for the lock, which refuses it.
if redis.call('type', KEYS[2]).ok == 'hash' then
    local fingerprint = false
    if s[1] and redis.call('hexists', KEYS[2], s[1]) == 1 then
        fingerprint = s[2]
    end
    return {'busy', fingerprint, redis.call('pttl', KEYS[2])}
elseif s[1] then
    return {'ended', s[2]}
end
return {'free', false}
