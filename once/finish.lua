-- Stores the result of a run, and wakes who waits. The first result of a run stays.
--
-- KEYS[1]  companion
-- KEYS[2]  lock
-- ARGV[1]  owner of the run
-- ARGV[2]  TTL of the result, ms
-- ARGV[3]  fingerprint
-- ARGV[4]  result
-- ARGV[5]  channel
-- ARGV[6]  command of announce
--
-- reply    1 if the result is stored; 0 if the owner does not hold the lock;
--          2 if the run has ended with another result
local owner, ttl, fingerprint, result, channel, publish = unpack(ARGV)
-- An earlier execution may have stored it, and the lock be gone since.
local s = redis.call('hmget', KEYS[1], 'owner', 'result')
if s[1] == owner and s[2] then
    return s[2] == result and 1 or 2
end
if not held(owner) then
    return 0
end
redis.call('hset', KEYS[1], 'is', 'result', 'owner', owner, 'fingerprint', fingerprint, 'result', result)
redis.call('pexpire', KEYS[1], ttl)
announce(publish, channel, 'done')
return 1
