-- Removes a read/write lock whoever holds it, and a writer's intent, and wakes
-- all waiters. It names no owner, hence must not be repeated blindly.
--
-- KEYS[1]  lock
-- KEYS[2]  writer's intent
-- ARGV[1]  PUBLISH, SPUBLISH, or both
-- ARGV[2]  channel
--
-- reply    {1}              removed
--          {0}              it was free
--          {-1, key, type}  key belongs to something that is not a read/write lock
local mode = look(KEYS[1], '')
if stranger(mode) then
    return {-1, KEYS[1], mode}
end
local removed = redis.call('del', KEYS[1])
if retract(KEYS[2]) or removed > 0 then
    announce(ARGV[1], ARGV[2], '1')
end
return {removed}
