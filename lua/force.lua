-- Removes a lock whoever holds it, and wakes a waiter. The one script that
-- names no owner, hence the one that must not be repeated blindly.
--
-- KEYS[1]  lock
-- ARGV[1]  PUBLISH, SPUBLISH, or both
-- ARGV[2]  unlock channel
--
-- reply    {1}              removed
--          {0}              it was free
--          {-1, key, type}  key belongs to something that is not a lock
local what = kind(KEYS[1])
if what == 'none' then
    return {0}
elseif what ~= 'lock' then
    return {-1, KEYS[1], what}
end
redis.call('del', KEYS[1])
announce(ARGV[1], ARGV[2], '0')
return {1}
