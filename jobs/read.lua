-- KEYS[1]  companion of the job's lock
--
-- reply    {1; server's time; newest fire; the one after that}
local old = redis.call('hmget', KEYS[1], 'fire', 'next')
return {1, now(), tonumber(old[1] or 0), tonumber(old[2] or 0)}
