-- Begins a run under the lock, unless there is a result.
--
-- KEYS[1]  companion
-- KEYS[2]  lock
-- ARGV[1]  owner of the run
-- ARGV[2]  TTL of the companion, ms
-- ARGV[3]  fingerprint
-- ARGV[4]  1: not after a run that has ended without a result
--
-- reply    as peek's "done" and "ended"; {"lost", nil} if the owner does not hold the lock;
--          {"free", nil} if the run has begun
local owner, ttl, fingerprint, strict = unpack(ARGV)
if not held(owner) then
    return {'lost', false}
end
local s = redis.call('hmget', KEYS[1], 'owner', 'fingerprint', 'result')
if s[3] then
    return {'done', s[2], s[3]}
elseif s[1] and s[1] ~= owner and strict == '1' then
    return {'ended', s[2]}
end
redis.call('hset', KEYS[1], 'is', 'result', 'owner', owner, 'fingerprint', fingerprint)
redis.call('pexpire', KEYS[1], ttl)
return {'free', false}
