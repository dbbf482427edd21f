-- Removes a lock, of any owner or of a certain owner, and passes the lock on. Without an owner
-- the script must not be repeated blindly: it would remove the next holder's lock.
--
-- KEYS[1]  lock
-- KEYS[2]  queue; nil for a lock that has none
-- KEYS[3]  fencing counter; nil for a lock without tokens
-- ARGV[1]  PUBLISH, SPUBLISH, or both
-- ARGV[2]  owner; nil for any
--
-- reply    {1}              removed
--          {0}              the lock was free, or another owner holds it
--          {-1, key, type}  the key is no lock
local what, holder = kind(KEYS[1])
if what ~= 'none' and what ~= 'lock' then
    return {-1, KEYS[1], what}
elseif what == 'none' or ARGV[2] and holder ~= ARGV[2] then
    local answer = nothing(KEYS[1], ARGV[2] or '')
    return answer ~= 0 and answer or {0}
end
redis.call('del', KEYS[1])
if not KEYS[2] then
    announce(ARGV[1], unlocks(KEYS[1]), '0')
    return {1}
end
local _, _, record = first(KEYS[2])
if record then
    redis.call('zrem', KEYS[2], record)
end
pass(KEYS[1], KEYS[2], KEYS[3], ARGV[1])
return {1}
